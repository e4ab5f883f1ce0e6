package fakeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

var resolver = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// Types is an API server of types that come and go and of the metadata of objects. Types serves discovery, reads,
// streaming lists, watches, deletes with finalizers, and JSON patches.
type Types struct {
	PageSize int // of lists with a limit; 0 means the limit

	config   rest.Config
	lock     sync.Mutex
	readyz   Readyz
	version  int
	served   []*servedType
	broken   map[string]int
	requests []Request
	before   func(context.Context, Request) error
	after    func(r Request, old, new *metav1.PartialObjectMetadata) error
	open     int // watches
}

type servedType struct {
	gv       schema.GroupVersion
	api      metav1.APIResource
	objects  []*metav1.PartialObjectMetadata
	streams  map[chan Event]bool
	past     []Event // in order
	held     []Event // not sent, because watches are frozen
	frozen   bool
	status   int
	hang     chan struct{}
	noStream bool // lists do not come as streams
}

// Event is a watch event.
type Event struct {
	Type   string                        `json:"type"`
	Object *metav1.PartialObjectMetadata `json:"object"`
}

// NewTypes starts a server with the type namespaces until the test ends.
func NewTypes(t *testing.T) *Types {
	t.Helper()
	f := NewLocalTypes()
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	f.config = rest.Config{Host: server.URL, QPS: -1}
	return f
}

// NewLocalTypes returns a server like that of NewTypes. Requests take no connection, so the server also works in a
// bubble of fake time.
func NewLocalTypes() *Types {
	f := &Types{broken: map[string]int{}}
	f.config = rest.Config{Host: "http://local", QPS: -1, Transport: localTransport{f}}
	f.AddType("v1", metav1.APIResource{Name: "namespaces", Kind: "Namespace"})
	return f
}

// Config reaches the server.
func (f *Types) Config() *rest.Config { return rest.CopyConfig(&f.config) }

// AddType adds a type. A type without verbs gets all verbs.
func (f *Types) AddType(groupVersion string, api metav1.APIResource) {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		panic(err) // of the test's own
	}
	if api.Verbs == nil {
		api.Verbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.served = append(f.served, &servedType{gv: gv, api: api, streams: map[chan Event]bool{}})
}

// RemoveType removes a type and ends the watches of that type. Remaining objects are lost.
func (f *Types) RemoveType(groupVersion, resource string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.served = slices.DeleteFunc(f.served, func(t *servedType) bool {
		if t.gv.String() != groupVersion || t.api.Name != resource {
			return false
		}
		t.endWatches()
		return true
	})
}

func (t *servedType) endWatches() {
	for stream := range t.streams {
		close(stream)
	}
	clear(t.streams)
}

// BreakType makes lists and watches of a type fail with a status and ends open watches. 0 repairs the type.
func (f *Types) BreakType(groupVersion, resource string, status int) {
	f.withType(groupVersion, resource, func(t *servedType) {
		t.status = status
		t.endWatches()
	})
}

// BlockRequests lets requests for a type wait until the test ends or the result is called.
func (f *Types) BlockRequests(t *testing.T, groupVersion, resource string) (heal func()) {
	t.Helper()
	hang := make(chan struct{})
	f.withType(groupVersion, resource, func(t *servedType) { t.hang = hang })
	heal = sync.OnceFunc(func() {
		f.withType(groupVersion, resource, func(t *servedType) { t.hang = nil })
		close(hang)
	})
	t.Cleanup(heal)
	return heal
}

// NoStream has the lists of a type come in pages only.
func (f *Types) NoStream(groupVersion, resource string) {
	f.withType(groupVersion, resource, func(t *servedType) { t.noStream = true })
}

// BreakDiscovery makes the discovery of a group version fail with a status. 0 repairs the discovery.
func (f *Types) BreakDiscovery(groupVersion string, status int) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.broken[groupVersion] = status
}

// SetReadyz sets the status of /readyz. 0 is ready.
func (f *Types) SetReadyz(status int) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.readyz.Status = status
}

// OpenWatches returns the number of open watches.
func (f *Types) OpenWatches() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.open
}

func (f *Types) withType(groupVersion, resource string, do func(*servedType)) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, t := range f.served {
		if t.gv.String() == groupVersion && t.api.Name == resource {
			do(t)
		}
	}
}

// ServeHTTP implements http.Handler.
func (f *Types) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	info, err := resolver.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		f.serveDiscovery(w, r)
		return
	}
	namespace := info.Namespace
	if info.Resource == "namespaces" {
		namespace = ""
	}
	sent := Request{What: info.Verb + " " + info.Resource + " " + info.Name, Namespace: namespace, Name: info.Name, At: time.Now()}
	sent.Body, _ = io.ReadAll(r.Body)
	if info.Verb == "delete" {
		_ = json.Unmarshal(sent.Body, &sent.Delete)
	}
	f.lock.Lock()
	at := slices.IndexFunc(f.served, func(t *servedType) bool {
		return t.gv.Group == info.APIGroup && t.gv.Version == info.APIVersion && t.api.Name == info.Resource
	})
	f.requests = append(f.requests, sent)
	if at < 0 {
		f.lock.Unlock()
		http.NotFound(w, r)
		return
	}
	t, before := f.served[at], f.before
	status, hang := t.status, t.hang
	if info.Verb == "watch" && t.noStream && r.URL.Query().Get("sendInitialEvents") != "" {
		status = http.StatusUnprocessableEntity
	}
	f.lock.Unlock()
	if before != nil {
		if err := before(r.Context(), sent); err != nil {
			writeError(w, err)
			return
		}
	}
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case status != 0 && (info.Verb == "list" || info.Verb == "watch"):
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "30")
		}
		writeFailure(w, status)
	case info.Verb == "watch":
		f.serveWatch(w, r, t)
	case info.Verb == "list":
		f.serveList(w, r, t, namespace)
	default:
		f.serveObject(w, info.Verb, t, sent)
	}
}

func (f *Types) serveList(w http.ResponseWriter, r *http.Request, t *servedType, namespace string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(f.version)},
	}
	for _, o := range t.objects {
		if namespace == "" || o.Namespace == namespace {
			list.Items = append(list.Items, *o)
		}
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	list.Items = list.Items[min(from, len(list.Items)):]
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 {
		if limit = cmp.Or(f.PageSize, limit); len(list.Items) > limit {
			list.Items, list.Continue = list.Items[:limit], strconv.Itoa(from+limit)
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (f *Types) serveWatch(w http.ResponseWriter, r *http.Request, t *servedType) {
	stream := make(chan Event, 1000)
	f.lock.Lock()
	if r.URL.Query().Get("sendInitialEvents") != "" {
		for _, o := range t.objects {
			stream <- Event{"ADDED", o}
		}
		stream <- Event{"BOOKMARK", newMetadata(metav1.ObjectMeta{ResourceVersion: fmt.Sprint(f.version),
			Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}})}
	} else if from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion")); err == nil && from > 0 {
		for _, e := range t.past {
			if at, _ := strconv.Atoi(e.Object.ResourceVersion); at > from {
				stream <- e
			}
		}
	}
	t.streams[stream] = true
	f.open++
	f.lock.Unlock()
	defer func() {
		f.lock.Lock()
		defer f.lock.Unlock()
		delete(t.streams, stream)
		f.open--
	}()
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e, ok := <-stream:
			if !ok || json.NewEncoder(w).Encode(e) != nil {
				return
			}
			_ = flush.Flush()
		}
	}
}

func (f *Types) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	defer f.lock.Unlock()
	switch r.URL.Path {
	case "/readyz":
		f.readyz.writeStatus(w)
	case "/api":
		f.requests = append(f.requests, Request{What: "discovery", At: time.Now()})
		_ = json.NewEncoder(w).Encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
	case "/apis":
		_ = json.NewEncoder(w).Encode(f.apiGroups())
	default:
		gv := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")
		if status := f.broken[gv]; status != 0 {
			writeFailure(w, status)
			return
		}
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv}
		for _, t := range f.served {
			if t.gv.String() == gv {
				list.APIResources = append(list.APIResources, t.api)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	}
}

func (f *Types) apiGroups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	named := map[string]int{}
	for _, t := range f.served {
		if t.gv.Group == "" {
			continue
		}
		if _, ok := named[t.gv.Group]; !ok {
			named[t.gv.Group] = len(list.Groups)
			list.Groups = append(list.Groups, metav1.APIGroup{Name: t.gv.Group})
		}
		g := &list.Groups[named[t.gv.Group]]
		v := metav1.GroupVersionForDiscovery{GroupVersion: t.gv.String(), Version: t.gv.Version}
		if !slices.Contains(g.Versions, v) {
			g.Versions = append(g.Versions, v)
			g.PreferredVersion = g.Versions[0]
		}
	}
	return list
}
