package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Types is an API server of types that come and go and of the metadata of objects. Types serves discovery, lists,
// streaming lists and watches.
type Types struct {
	*httptest.Server

	lock     sync.Mutex
	readyz   Readyz
	version  int
	served   []*servedType
	broken   map[string]int
	requests []string // "list path", "watch path" or "discovery"
	open     int      // watches
}

type servedType struct {
	path     string
	gv       schema.GroupVersion
	api      metav1.APIResource
	objects  []*metav1.PartialObjectMetadata
	streams  map[chan event]bool
	past     []event // in order
	status   int
	hang     chan struct{}
	noStream bool // lists do not come as streams
}

type event struct {
	Type   string                        `json:"type"`
	Object *metav1.PartialObjectMetadata `json:"object"`
}

// NewTypes starts a server with the type namespaces until the test ends.
func NewTypes(t *testing.T) *Types {
	t.Helper()
	f := &Types{broken: map[string]int{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	f.AddType("v1", metav1.APIResource{Name: "namespaces", Kind: "Namespace"})
	return f
}

// Config reaches the server.
func (f *Types) Config() *rest.Config { return &rest.Config{Host: f.URL, QPS: -1} }

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
	path := "/apis/" + groupVersion + "/" + api.Name
	if gv.Group == "" {
		path = "/api/" + groupVersion + "/" + api.Name
	}
	f.served = append(f.served, &servedType{path: path, gv: gv, api: api, streams: map[chan event]bool{}})
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

// Put creates or changes an object of a type. The object needs a name and gets a UID and a version.
func (f *Types) Put(groupVersion, resource string, meta metav1.ObjectMeta) (uid types.UID) {
	f.withType(groupVersion, resource, func(t *servedType) {
		f.version++
		meta.ResourceVersion = fmt.Sprint(f.version)
		e := event{"ADDED", newMetadata(meta)}
		at := slices.IndexFunc(t.objects, func(o *metav1.PartialObjectMetadata) bool {
			return o.Name == meta.Name && o.Namespace == meta.Namespace
		})
		if at >= 0 {
			e.Type, e.Object.UID = "MODIFIED", t.objects[at].UID
			t.objects[at] = e.Object
		} else {
			if e.Object.UID == "" {
				e.Object.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", f.version))
			}
			t.objects = append(t.objects, e.Object)
		}
		uid = e.Object.UID
		t.sendEvent(e)
	})
	return uid
}

// Remove deletes an object.
func (f *Types) Remove(groupVersion, resource, namespace, name string) {
	f.withType(groupVersion, resource, func(t *servedType) {
		t.objects = slices.DeleteFunc(t.objects, func(o *metav1.PartialObjectMetadata) bool {
			if o.Name != name || o.Namespace != namespace {
				return false
			}
			f.version++
			gone := o.DeepCopy()
			gone.ResourceVersion = fmt.Sprint(f.version)
			t.sendEvent(event{"DELETED", gone})
			return true
		})
	})
}

// RequestCount returns the number of requests of a kind: "discovery", "list /apis/…" or "watch /apis/…".
func (f *Types) RequestCount(what string) int {
	f.lock.Lock()
	defer f.lock.Unlock()
	n := 0
	for _, a := range f.requests {
		if a == what {
			n++
		}
	}
	return n
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

func newMetadata(meta metav1.ObjectMeta) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: meta}
}

func (t *servedType) sendEvent(e event) {
	t.past = append(t.past, e)
	for stream := range t.streams {
		stream <- e
	}
}

// ServeHTTP implements http.Handler.
func (f *Types) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); len(parts) <= 1 || len(parts) <= 3 && parts[0] == "apis" || len(parts) == 2 {
		f.serveDiscovery(w, r)
		return
	}
	f.lock.Lock()
	at := slices.IndexFunc(f.served, func(t *servedType) bool { return t.path == r.URL.Path })
	if at < 0 {
		f.lock.Unlock()
		http.NotFound(w, r)
		return
	}
	t := f.served[at]
	query := r.URL.Query()
	kind := "list "
	if query.Get("watch") != "" {
		kind = "watch "
	}
	f.requests = append(f.requests, kind+r.URL.Path)
	status, hang := t.status, t.hang
	if kind == "watch " && t.noStream && query.Get("sendInitialEvents") != "" {
		status = http.StatusUnprocessableEntity
	}
	f.lock.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case status != 0:
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "30")
		}
		writeFailure(w, status)
	case kind == "watch ":
		f.serveWatch(w, r, t)
	default:
		f.serveList(w, t)
	}
}

func (f *Types) serveList(w http.ResponseWriter, t *servedType) {
	f.lock.Lock()
	defer f.lock.Unlock()
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(f.version)},
	}
	for _, o := range t.objects {
		list.Items = append(list.Items, *o)
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (f *Types) serveWatch(w http.ResponseWriter, r *http.Request, t *servedType) {
	stream := make(chan event, 1000)
	f.lock.Lock()
	if r.URL.Query().Get("sendInitialEvents") != "" {
		for _, o := range t.objects {
			stream <- event{"ADDED", o}
		}
		stream <- event{"BOOKMARK", newMetadata(metav1.ObjectMeta{ResourceVersion: fmt.Sprint(f.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}})}
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
		f.requests = append(f.requests, "discovery")
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
