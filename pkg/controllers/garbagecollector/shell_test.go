package garbagecollector

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/pkg/controller"
)

// shell is a controller without watches and loops. A test adds objects to the graph, and functions return the responses
// to API calls. ConfigMaps are served from the start.
type shell struct {
	*Controller
	clock  *clocktesting.FakeClock
	feed   *feed // of ConfigMaps
	events chan string

	lock     sync.Mutex
	get      func(name string, nth int) (*thing, error)
	remove   func(nth int) error
	patch    func(name string, nth int) error
	list     func(resource string) ([]*thing, error)
	gets     map[string]int
	patches  map[string]int
	patched  map[string]bool // patches without error, by name
	deletes  []metav1.DeleteOptions
	requests []string // verb, object, and the body of a patch
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{
		clock: clocktesting.NewFakeClock(began), gets: map[string]int{}, patches: map[string]int{}, patched: map[string]bool{},
		get:    func(name string, _ int) (*thing, error) { return nil, notFound(name) },
		remove: func(int) error { return nil },
		patch:  func(string, int) error { return nil },
		list:   func(string) ([]*thing, error) { return nil, nil },
	}
	client := apiCalls{do: func(_ context.Context, c apiCall) ([]*thing, error) {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.requests = append(s.requests, strings.TrimSpace(strings.Join([]string{c.verb, c.resource, cmp.Or(c.name, c.namespace), string(c.patch)}, " ")))
		switch c.verb {
		case "get":
			s.gets[c.name]++
			o, err := s.get(c.name, s.gets[c.name])
			return []*thing{o}, err
		case "list":
			return s.list(c.resource)
		case "delete":
			s.deletes = append(s.deletes, c.options)
			return nil, s.remove(len(s.deletes))
		}
		s.patches[c.name]++
		err := s.patch(c.name, s.patches[c.name])
		s.patched[c.name] = s.patched[c.name] || err == nil
		return nil, err
	}}
	s.Controller = newTestController(client, s.clock, func(queueKeys) {})
	s.events = s.deps.Recorder.(*record.FakeRecorder).Events
	s.feed = s.serve(t, configMaps, "v1")
	return s
}

// newTestController returns a controller without types, whose loops drop all keys.
func newTestController(client metadata.Interface, clk clock.WithTicker, enqueue func(queueKeys)) *Controller {
	g, state, m := newGraph(clk, enqueue), newTermState(), newMetrics(prometheus.NewRegistry())
	known := &knownTypes{deps: typesDeps{Graph: g, Clock: clk}, defined: map[string]time.Time{}, types: map[schema.GroupResource]*knownType{}, latest: newCatalogue(began, nil)}
	loop := controller.NewLoop[id](controller.LoopConfig{Workers: 1, Clock: clk}, prometheus.NewRegistry(), nil)
	return &Controller{
		deps: Deps{Metadata: client, Clock: clk, Recorder: record.NewFakeRecorder(100)}, graph: g, types: known, objectLoop: loop, ownerLoop: loop,
		owners: newOwnerReader(client, clk, g, known), sweeper: newSweeper(client, clk, g, known, state.finishing), state: state,
		writer: newWriter(client, clk, false, m), metrics: m,
	}
}

// serve adds a type whose watch is current.
func (s *shell) serve(t *testing.T, typ objectType, version string) *feed {
	t.Helper()
	f := s.graph.feed(typ)
	api := apiType{
		GroupVersionResource: typ.WithVersion(version), kind: typ.kind, namespaced: typ != nodesType, versions: []string{version}, local: typ.local, watched: true,
	}
	s.types.types[typ.GroupResource] = &knownType{typeState: typeState{apiType: api, feedState: feedState{current, began}, feed: f}}
	s.discover(s.types.latest.sent)
	return f
}

// discover replaces the catalogue by all types. sent is the time of the discovery request.
func (s *shell) discover(sent time.Time) {
	var all []apiType
	for _, k := range s.types.types {
		all = append(all, k.apiType)
	}
	s.types.latest = newCatalogue(sent, nil, all...)
}

// sentRequests returns the requests so far, of one verb unless verb is empty.
func (s *shell) sentRequests(verb string) []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r string) bool { return !strings.HasPrefix(r, verb) })
}

func (s *shell) sent() []metav1.DeleteOptions {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.deletes)
}

func notFound(name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

// counts returns the number of blocked owners and objects by cause.
func (s *shell) counts() map[string]int {
	causes, _ := s.state.counts(s.clock.Now())
	return causes
}

// apiCalls is a client whose responses come from one function. The function may be slow.
type apiCalls struct {
	metadata.Interface
	metadata.ResourceInterface
	call apiCall
	do   func(context.Context, apiCall) ([]*thing, error)
}

type apiCall struct {
	verb, resource, namespace, name string
	options                         metav1.DeleteOptions
	patch                           []byte
}

// oneThing adapts a function that returns one object.
func oneThing(do func(ctx context.Context, verb, resource, namespace, name string) (*thing, error)) func(context.Context, apiCall) ([]*thing, error) {
	return func(ctx context.Context, c apiCall) ([]*thing, error) {
		o, err := do(ctx, c.verb, c.resource, c.namespace, c.name)
		if o == nil {
			return nil, err
		}
		return []*thing{o}, err
	}
}

func (a apiCalls) Resource(r schema.GroupVersionResource) metadata.Getter {
	a.call.resource = r.Resource
	return a
}

func (a apiCalls) Namespace(namespace string) metadata.ResourceInterface {
	a.call.namespace = namespace
	return a
}

func (a apiCalls) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	a.call.verb, a.call.name = "get", name
	all, err := a.do(ctx, a.call)
	if err != nil {
		return nil, err
	}
	return &all[0].PartialObjectMetadata, nil
}

func (a apiCalls) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	a.call.verb = "list"
	all, err := a.do(ctx, a.call)
	list := &metav1.PartialObjectMetadataList{}
	for _, o := range all {
		list.Items = append(list.Items, o.PartialObjectMetadata)
	}
	return list, err
}

func (a apiCalls) Delete(ctx context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	a.call.verb, a.call.name, a.call.options = "delete", name, options
	_, err := a.do(ctx, a.call)
	return err
}

func (a apiCalls) Patch(ctx context.Context, name string, _ types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	a.call.verb, a.call.name, a.call.patch = "patch", name, patch
	_, err := a.do(ctx, a.call)
	return nil, err
}
