package garbagecollector

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
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
	client := metadatafake.NewSimpleMetadataClient(runtime.NewScheme())
	react := func(verb string, answer func(clienttesting.Action) (runtime.Object, error)) {
		client.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			s.lock.Lock()
			defer s.lock.Unlock()
			o, err := answer(a)
			return true, o, err
		})
	}
	react("get", func(a clienttesting.Action) (runtime.Object, error) {
		name := a.(clienttesting.GetAction).GetName()
		s.gets[name]++
		s.note("get", a, name)
		o, err := s.get(name, s.gets[name])
		if err != nil {
			return nil, err
		}
		return &o.PartialObjectMetadata, nil
	})
	react("list", func(a clienttesting.Action) (runtime.Object, error) {
		s.note("list", a, a.GetNamespace())
		all, err := s.list(a.GetResource().Resource)
		if err != nil {
			return nil, err
		}
		list := &metav1.List{}
		for _, o := range all {
			list.Items = append(list.Items, runtime.RawExtension{Object: &o.PartialObjectMetadata})
		}
		return list, nil
	})
	react("delete", func(a clienttesting.Action) (runtime.Object, error) {
		s.deletes = append(s.deletes, a.(clienttesting.DeleteActionImpl).DeleteOptions)
		s.note("delete", a, a.(clienttesting.DeleteAction).GetName())
		return nil, s.remove(len(s.deletes))
	})
	react("patch", func(a clienttesting.Action) (runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		s.patches[p.GetName()]++
		s.note("patch", a, p.GetName(), string(p.GetPatch()))
		err := s.patch(p.GetName(), s.patches[p.GetName()])
		s.patched[p.GetName()] = s.patched[p.GetName()] || err == nil
		return nil, err
	})
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

func (s *shell) note(verb string, a clienttesting.Action, what ...string) {
	s.requests = append(s.requests, strings.TrimSpace(fmt.Sprint(verb, " ", a.GetResource().Resource, " ", strings.Join(what, " "))))
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
