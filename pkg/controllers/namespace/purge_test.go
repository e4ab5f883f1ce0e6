package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controllers/internal/discovery"
)

// pagedClient supports continue tokens and resource versions, unlike the fake client.
type pagedClient struct {
	metadata.Interface
	metadata.ResourceInterface
	list   func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
	remove func(token string) error
	one    func(name string) error
}

func (c pagedClient) Resource(schema.GroupVersionResource) metadata.Getter { return c }
func (c pagedClient) Namespace(string) metadata.ResourceInterface          { return c }
func (c pagedClient) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return c.list(ctx, o)
}
func (c pagedClient) DeleteCollection(_ context.Context, _ metav1.DeleteOptions, o metav1.ListOptions) error {
	if o.Limit == 0 { // the API server would hold the whole namespace in memory
		return errors.New("deletecollection has no limit")
	}
	return c.remove(cmp.Or(o.Continue, o.ResourceVersion))
}
func (c pagedClient) Delete(_ context.Context, name string, o metav1.DeleteOptions, _ ...string) error {
	if o.Preconditions == nil || *o.Preconditions.UID != types.UID("uid-"+name) {
		return errors.New("the delete does not have the UID of the listed object")
	}
	return c.one(name)
}

// newPurger returns a purger on a client whose deletes succeed by default.
func newPurger(t *testing.T, client pagedClient) *purger {
	t.Helper()
	b := newBench(t, terminating())
	succeed := func(string) error { return nil }
	if client.remove == nil {
		client.remove = succeed
	}
	if client.one == nil {
		client.one = succeed
	}
	b.Controller.metadata = client
	return &purger{Controller: b.Controller, namespace: terminating(), timeouts: map[schema.GroupResource]int{}}
}

func named(names ...string) *metav1.PartialObjectMetadataList {
	page := &metav1.PartialObjectMetadataList{}
	for _, name := range names {
		page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}})
	}
	return page
}

// For the latest version of a type that was just listed, a server may wait. The first page is deleted by its version,
// and that version suffices for the second list if the list shows the deletion. Further pages follow by continue token.
func TestPagesAndVersions(t *testing.T) {
	page := func(version string, items ...metav1.PartialObjectMetadata) *metav1.PartialObjectMetadataList {
		return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: items}
	}
	there, held := metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		DeletionTimestamp: &metav1.Time{Time: epoch}, Finalizers: []string{"a/b"}}}
	shown, empty, many := page("7", there), page("7"), page("7", make([]metav1.PartialObjectMetadata, pageSize+1)...)
	many.Continue = "more"
	next := func(token string, items ...metav1.PartialObjectMetadata) *metav1.PartialObjectMetadataList {
		return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: token}, Items: items}
	}
	unsupported, expired := apierrors.NewBadRequest("resourceVersionMatch"), apierrors.NewResourceExpired("too old")
	for _, tt := range []struct {
		name      string
		lists     []any    // a page or an error
		rejection error    // of deletes by version
		want      []string // each with a continue token or a version
		left      int64
		fails     bool
	}{
		{"nothing is left", []any{shown, empty}, nil, []string{"list ", "delete 7", "list 7"}, 0, false},
		{"objects being deleted are left", []any{shown, page("7", held)}, nil, []string{"list ", "delete 7", "list 7"}, 1, false},
		{"the server has not seen the deletion yet", []any{shown, shown, empty}, nil, []string{"list ", "delete 7", "list 7", "list "}, 0, false},
		{"no response", []any{shown, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF}, nil, []string{"list ", "delete 7", "list 7", "list "}, 0, true},
		{"a watch cache that lags", []any{shown, apierrors.NewTimeoutError("too large", 1), empty}, nil, []string{"list ", "delete 7", "list 7", "list "}, 0, false},
		{"a list without a version", []any{page("", there), empty}, nil, []string{"list ", "delete ", "list "}, 0, false},
		{"a list of any version", []any{page("0", there), empty}, nil, []string{"list ", "delete ", "list "}, 0, false},
		{"more than a page", []any{many, empty, empty}, nil, []string{"list ", "delete 7", "list more", "list "}, 0, false},
		{"three pages", []any{next("two", there), next("three", there), next("", there), next("two", held), next("three", held), next("", held)}, nil,
			[]string{"list ", "delete ", "list two", "delete two", "list three", "delete three", "list ", "list two", "list three"}, 3, false},
		{"an expired token", []any{next("two", there), expired, next("two"), expired}, nil, []string{"list ", "delete ", "list two", "list ", "list two"}, 1, false},
		{"no deletes by version", []any{shown, empty}, unsupported, []string{"list ", "delete 7", "delete ", "list 7"}, 0, false},
		{"an expired version", []any{shown, empty}, expired, []string{"list ", "delete 7", "delete ", "list 7"}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sent []string
			lists := tt.lists
			p := newPurger(t, pagedClient{
				list: func(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
					if o.ResourceVersion != "" && o.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan {
						t.Errorf("listed version %s, match %q", o.ResourceVersion, o.ResourceVersionMatch)
					}
					sent = append(sent, "list "+cmp.Or(o.Continue, o.ResourceVersion))
					page, _ := lists[0].(*metav1.PartialObjectMetadataList)
					err, _ := lists[0].(error)
					lists = lists[1:]
					return page, err
				},
				remove: func(page string) error {
					if sent = append(sent, "delete "+page); page != "" {
						return tt.rejection
					}
					return nil
				},
			})
			out := p.purge(t.Context(), discovery.Pods)
			expect(t, sent, tt.want...)
			if out.remaining != tt.left || (out.err != nil) != tt.fails {
				t.Errorf("%d left, error %v", out.remaining, out.err)
			}
		})
	}
}

// A second DELETE with background propagation removes the finalizers of the garbage collector.
func TestObjectsOfTheGarbageCollectorAreDeleted(t *testing.T) {
	for _, tt := range []struct {
		finalizers []string
		deletes    int
	}{
		{[]string{metav1.FinalizerDeleteDependents}, 1},
		{[]string{"a/b", metav1.FinalizerOrphanDependents}, 1},
		{[]string{"a/b"}, 0},
		{nil, 0}, // a pod in its grace period
	} {
		for _, collections := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.finalizers, collections), func(t *testing.T) {
				page := named("x")
				page.Items[0].DeletionTimestamp, page.Items[0].Finalizers = &metav1.Time{Time: epoch}, tt.finalizers
				deletes := 0
				remove := func(string) error {
					deletes++
					return nil
				}
				p := newPurger(t, pagedClient{list: func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) { return page, nil }, remove: remove, one: remove})
				r := discovery.Pods
				r.DeleteCollection = collections
				if out := p.purge(t.Context(), r); deletes != tt.deletes || out.err != nil {
					t.Errorf("deleted %d times, want %d; error %v", deletes, tt.deletes, out.err)
				}
			})
		}
	}
}

func TestPagesShrinkAfterTimeouts(t *testing.T) {
	configMaps := discovery.Type{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, List: true}
	var limits []int64
	var fault error
	p := newPurger(t, pagedClient{list: func(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		limits = append(limits, o.Limit)
		return &metav1.PartialObjectMetadataList{}, fault
	}})
	s := &state{timeouts: p.timeouts}
	for _, fault = range []error{context.DeadlineExceeded, apierrors.NewTimeoutError("slow", 1), context.DeadlineExceeded, context.DeadlineExceeded, nil, nil} {
		s.record([]typeResult{p.purge(t.Context(), configMaps)}, epoch)
	}
	fakeapi.WantEqual(t, "limits of pages", limits, []int64{500, 62, 7, 1, 1, 500})
}

func TestUnresponsiveAPIGetsOneRequestPerPause(t *testing.T) {
	b := newBench(t)
	gv := schema.GroupVersion{Group: "a.io", Version: "v1"}
	b.unresponsive.record(gv, "large", true)
	if !b.unresponsive.skip(gv, "large") || b.unresponsive.skip(gv, "other") {
		t.Error("a timeout in one namespace pauses other namespaces, or not its own")
	}
	b.unresponsive.record(gv, "other", true)
	for round := range 2 {
		b.clock.Step(minTimeout - 1)
		if !b.unresponsive.skip(gv, "third") {
			t.Errorf("round %d: not skipped within the pause", round)
		}
		b.clock.Step(1)
		if b.unresponsive.skip(gv, "third") || !b.unresponsive.skip(gv, "third") {
			t.Errorf("round %d: want one request after the pause", round)
		}
	}
	b.unresponsive.record(gv, "third", false)
	if b.unresponsive.skip(gv, "third") {
		t.Error("skipped after a response")
	}
}

// Deletecollection ends at the first rejection.
func TestOneRejectionBlocksNoOther(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	denied := apierrors.NewForbidden(pods, "a-first", errors.New("admission webhook said no"))
	for _, tt := range []struct {
		name    string
		all     error // of deletecollection
		each    error // of deletes of the first objects
		first   int
		deletes int    // one by one
		says    string // the error
	}{
		{"one by admission", denied, denied, 1, 20, "delete pods: 00: "},
		{"one whose webhook is down", apierrors.NewInternalError(errors.New("calling webhook")), denied, 1, 20, "delete pods: 00: "},
		{"deletecollection only", denied, nil, 0, 20, ""},
		{"all", denied, denied, 20, 10, "delete pods: pods \"a-first\""},
		{"none: the server asks for patience", apierrors.NewTooManyRequests("later", 1), nil, 0, 0, "delete pods: later"},
		{"none: no response", io.ErrUnexpectedEOF, nil, 0, 0, "delete pods: unexpected EOF"},
		{"one by one only, and the connection breaks", denied, io.ErrUnexpectedEOF, 20, 1, "unexpected EOF"},
		{"no deletecollection", apierrors.NewMethodNotSupported(pods, "delete"), denied, 20, 10, "delete pods: 0"},
		{"no deletecollection of this namespace", apierrors.NewNotFound(pods, ""), nil, 0, 20, ""},
		{"so many at once take too long", apierrors.NewTimeoutError("slow", 1), nil, 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var names, sent []string
			for i := range 20 {
				names = append(names, fmt.Sprintf("%02d", i))
			}
			p := newPurger(t, pagedClient{
				list: func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
					return named(names...), nil
				},
				remove: func(string) error { return tt.all },
				one: func(name string) error {
					if sent = append(sent, name); slices.Index(names, name) < tt.first {
						return tt.each
					}
					return nil
				},
			})
			out, _ := p.walk(t.Context(), discovery.Pods, true)
			if (out.err != nil) != (tt.says != "") || out.err != nil && !strings.Contains(out.err.Error(), tt.says) {
				t.Errorf("error %v, want %q", out.err, tt.says)
			}
			fakeapi.Want(t, "objects deleted one by one", len(sent), tt.deletes)
		})
	}
}

// The response to a deletecollection has every deleted object.
func TestResponsesToDeletesHaveMetadata(t *testing.T) {
	for _, tt := range []struct{ name, method, query, accept string }{
		{"page of a type that can be listed", http.MethodDelete, "?limit=500", listAccept},
		{"type that cannot be listed", http.MethodDelete, "", "application/json"},
		{"list", http.MethodGet, "?limit=500", "application/json"},
	} {
		req := httptest.NewRequest(tt.method, "https://server/apis/a.io/v1/namespaces/test/things"+tt.query, nil)
		req.Header.Set("Accept", "application/json")
		fakeapi.Must(metadataTransport{fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
			fakeapi.Want(t, tt.name+": form of the response", req.Header.Get("Accept"), tt.accept)
			return nil, nil
		})}.RoundTrip(req))
	}
}
