package fakeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func newMetadata(meta metav1.ObjectMeta) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: meta}
}

// Put creates or changes an object of a type. The object needs a name and gets a UID and a version.
func (f *Types) Put(groupVersion, resource string, meta metav1.ObjectMeta) (uid types.UID) {
	f.withType(groupVersion, resource, func(t *servedType) {
		o, kind := newMetadata(*meta.DeepCopy()), "ADDED"
		if at := t.indexOf(meta.Namespace, meta.Name); at >= 0 {
			o.UID, kind = t.objects[at].UID, "MODIFIED"
			t.objects[at] = o
		} else {
			t.objects = append(t.objects, o)
		}
		if o.UID == "" {
			o.UID = types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012d", f.version+1))
		}
		uid = o.UID
		f.sendEvent(t, kind, o)
	})
	return uid
}

// ChangeObject changes an object. A terminating object without finalizers is removed.
func (f *Types) ChangeObject(groupVersion, resource, namespace, name string, change func(*metav1.PartialObjectMetadata)) {
	f.withType(groupVersion, resource, func(t *servedType) {
		if at := t.indexOf(namespace, name); at >= 0 {
			f.changeObject(t, at, change)
		}
	})
}

// DeleteObject deletes an object with a propagation policy, as a client does.
func (f *Types) DeleteObject(groupVersion, resource, namespace, name string, policy metav1.DeletionPropagation) {
	f.ChangeObject(groupVersion, resource, namespace, name, func(o *metav1.PartialObjectMetadata) { markDeleted(o, policy) })
}

// Remove removes an object with all finalizers.
func (f *Types) Remove(groupVersion, resource, namespace, name string) {
	f.ChangeObject(groupVersion, resource, namespace, name, func(o *metav1.PartialObjectMetadata) {
		now := metav1.Now()
		o.Finalizers, o.DeletionTimestamp = nil, &now
	})
}

// markDeleted sets the finalizer of a policy and the time of the deletion.
func markDeleted(o *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) {
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch policy {
	case metav1.DeletePropagationOrphan:
		o.Finalizers = append(o.Finalizers, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
	}
	if o.DeletionTimestamp == nil {
		now := metav1.Now()
		o.DeletionTimestamp = &now
	}
}

// ListObjects returns copies of the objects of a type.
func (f *Types) ListObjects(groupVersion, resource string) (all []*metav1.PartialObjectMetadata) {
	f.withType(groupVersion, resource, func(t *servedType) {
		for _, o := range t.objects {
			all = append(all, o.DeepCopy())
		}
	})
	return all
}

// GetObject returns a copy of an object, or nil.
func (f *Types) GetObject(groupVersion, resource, namespace, name string) (found *metav1.PartialObjectMetadata) {
	f.withType(groupVersion, resource, func(t *servedType) {
		if at := t.indexOf(namespace, name); at >= 0 {
			found = t.objects[at].DeepCopy()
		}
	})
	return found
}

// Events returns the events of a type in order. The events share their objects.
func (f *Types) Events(groupVersion, resource string) (all []Event) {
	f.withType(groupVersion, resource, func(t *servedType) { all = t.past })
	return all
}

// FreezeWatches holds the events of the watches of a type, or delivers them.
func (f *Types) FreezeWatches(groupVersion, resource string, frozen bool) {
	f.withType(groupVersion, resource, func(t *servedType) {
		if t.frozen = frozen; !frozen {
			for _, e := range t.held {
				t.deliverEvent(e)
			}
			t.held = nil
		}
	})
}

// Before calls hook before each request for objects. An error of the hook is the response.
func (f *Types) Before(hook func(context.Context, Request) error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.before = hook
}

// After calls hook after each accepted delete and patch, with the object before and after the request. An error of the
// hook replaces the response.
func (f *Types) After(hook func(r Request, old, new *metav1.PartialObjectMetadata) error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.after = hook
}

// Requests returns the requests so far that begin with prefix, in order: "discovery", or "verb resource name".
func (f *Types) Requests(prefix string) []Request {
	f.lock.Lock()
	defer f.lock.Unlock()
	return slices.DeleteFunc(slices.Clone(f.requests), func(r Request) bool { return !strings.HasPrefix(r.What, prefix) })
}

// Count returns the number of requests that begin with prefix.
func (f *Types) Count(prefix string) int { return len(f.Requests(prefix)) }

func (t *servedType) indexOf(namespace, name string) int {
	return slices.IndexFunc(t.objects, func(o *metav1.PartialObjectMetadata) bool { return o.Name == name && o.Namespace == namespace })
}

func (f *Types) changeObject(t *servedType, at int, change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	o := t.objects[at].DeepCopy()
	if change(o); o.DeletionTimestamp != nil && len(o.Finalizers) == 0 {
		t.objects = slices.Delete(t.objects, at, at+1)
		f.sendEvent(t, "DELETED", o)
		return o
	}
	t.objects[at] = o
	f.sendEvent(t, "MODIFIED", o)
	return o
}

// sendEvent gives an object the next version and sends an event.
func (f *Types) sendEvent(t *servedType, kind string, o *metav1.PartialObjectMetadata) {
	f.version++
	o.ResourceVersion = fmt.Sprint(f.version)
	e := Event{kind, o}
	t.past = append(t.past, e)
	if t.frozen {
		t.held = append(t.held, e)
		return
	}
	t.deliverEvent(e)
}

func (t *servedType) deliverEvent(e Event) {
	for stream := range t.streams {
		stream <- e
	}
}

// serveObject serves a get, delete or patch.
func (f *Types) serveObject(w http.ResponseWriter, verb string, t *servedType, r Request) {
	f.lock.Lock()
	after := f.after
	old, now, err := f.applyRequest(verb, t, r)
	f.lock.Unlock()
	if err == nil && after != nil && verb != "get" {
		err = after(r, old, now)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	_ = json.NewEncoder(w).Encode(now)
}

func (f *Types) applyRequest(verb string, t *servedType, r Request) (old, now *metav1.PartialObjectMetadata, err error) {
	resource := schema.GroupResource{Group: t.gv.Group, Resource: t.api.Name}
	at := t.indexOf(r.Namespace, r.Name)
	if at < 0 {
		return nil, nil, apierrors.NewNotFound(resource, r.Name)
	}
	old = t.objects[at]
	switch verb {
	case "delete":
		if p := r.Delete.Preconditions; p != nil && (p.UID != nil && *p.UID != old.UID || p.ResourceVersion != nil && *p.ResourceVersion != old.ResourceVersion) {
			return nil, nil, apierrors.NewConflict(resource, r.Name, errors.New("precondition failed"))
		}
		policy := ptr.Deref(r.Delete.PropagationPolicy, metav1.DeletePropagationBackground)
		return old, f.changeObject(t, at, func(o *metav1.PartialObjectMetadata) { markDeleted(o, policy) }), nil
	case "patch":
		patched, err := patchMetadata(old, r.Body)
		if err != nil {
			return nil, nil, apierrors.NewInvalid(schema.GroupKind{Group: t.gv.Group, Kind: t.api.Kind}, r.Name, nil)
		}
		return old, f.changeObject(t, at, func(o *metav1.PartialObjectMetadata) { *o = *patched }), nil
	}
	return old, old, nil
}

func patchMetadata(o *metav1.PartialObjectMetadata, body []byte) (*metav1.PartialObjectMetadata, error) {
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, err
	}
	old, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	patched, err := patch.Apply(old)
	if err != nil {
		return nil, err
	}
	into := &metav1.PartialObjectMetadata{}
	return into, json.Unmarshal(patched, into)
}

// writeError writes the status of an error. An error without a status is an internal error.
func writeError(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	body.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.WriteHeader(int(body.Code))
	_ = json.NewEncoder(w).Encode(body)
}

// localTransport calls a handler without a connection.
type localTransport struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (l localTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	r = r.Clone(ctx)
	if r.Body == nil {
		r.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	w := &localResponse{PipeWriter: writer, header: http.Header{}, begun: make(chan int, 1)}
	go func() {
		l.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		_ = writer.CloseWithError(ctx.Err()) // io.EOF without an error
	}()
	context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) })
	select {
	case status := <-w.begun:
		return &http.Response{StatusCode: status, Header: w.header, Body: localBody{reader, cancel}, Request: r}, nil
	case <-ctx.Done():
		cancel()
		return nil, ctx.Err()
	}
}

// localBody ends the request when the client closes the body.
type localBody struct {
	io.Reader
	cancel context.CancelFunc
}

func (b localBody) Close() error {
	b.cancel()
	return nil
}

type localResponse struct {
	*io.PipeWriter
	header http.Header
	once   sync.Once
	begun  chan int
}

func (w *localResponse) Header() http.Header { return w.header }

func (w *localResponse) WriteHeader(status int) { w.once.Do(func() { w.begun <- status }) }

func (w *localResponse) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.PipeWriter.Write(data)
}

// Flush implements http.Flusher.
func (w *localResponse) Flush() { w.WriteHeader(http.StatusOK) }
