package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"minikcm/pkg/controllers/internal/discovery"
)

func TestPagesFollowTheContinueToken(t *testing.T) {
	b := newBench(t, terminating())
	pages := map[string]*metav1.PartialObjectMetadataList{}
	for i, token := range []string{"", "two", "three"} {
		page := &metav1.PartialObjectMetadataList{}
		for n := range 3 {
			page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i, n)}})
		}
		pages[token] = page
	}
	pages[""].Continue, pages["two"].Continue = "two", "three"
	pages[""].RemainingItemCount, pages["two"].RemainingItemCount = new(int64(6)), new(int64(3))
	var lock sync.Mutex
	var removed []string
	p := b.newPurger(terminating(), b.states.For("test", terminating().UID))
	p.client = pagedClient{
		list: func(o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) { return pages[o.Continue], nil },
		remove: func(token string) error {
			lock.Lock()
			defer lock.Unlock()
			removed = append(removed, token)
			return nil
		},
	}
	out, _ := p.walk(t.Context(), discovery.Pods, true)
	slices.Sort(removed)
	if diff := gocmp.Diff([]string{"", "three", "two"}, removed); diff != "" || out.remaining != 9 || out.err != nil {
		t.Errorf("%d objects, error %v, pages removed:\n%s", out.remaining, out.err, diff)
	}

	p.client = pagedClient{list: func(o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		if o.Continue != "" {
			return nil, apierrors.NewResourceExpired("too old")
		}
		return pages[""], nil
	}}
	if out, _ := p.walk(t.Context(), discovery.Pods, false); out.remaining != 3 || out.err != nil {
		t.Errorf("%d objects, error %v after an expired token, want 3 and none", out.remaining, out.err)
	}
}

// The first page has no token. With its version the server does not wait for the latest state.
func TestFirstPageIsDeletedByItsVersion(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version string
		refusal error
		want    []string // resource versions of the deletecollections
	}{
		{"by its version", "7", nil, []string{"7"}},
		{"a list without a version", "", nil, []string{""}},
		{"a list of any version", "0", nil, []string{""}},
		{"a server that will not have it", "7", apierrors.NewBadRequest("resourceVersionMatch"), []string{"7", ""}},
		{"a version that is no more, or never was to be had", "7", apierrors.NewResourceExpired("too old"), []string{"7", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, terminating())
			var got []string
			p := b.newPurger(terminating(), b.states.For("test", terminating().UID))
			p.client = pagedClient{
				list: func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
					return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: tt.version}, Items: make([]metav1.PartialObjectMetadata, 1)}, nil
				},
				remove: func(version string) error {
					if got = append(got, version); version != "" {
						return tt.refusal
					}
					return nil
				},
			}
			out, removed := p.walk(t.Context(), discovery.Pods, true)
			if diff := gocmp.Diff(tt.want, got); diff != "" || out.err != nil || !removed {
				t.Errorf("error %v, removed %v\n%s", out.err, removed, diff)
			}
		})
	}
}

// For the latest version of a type that was just listed, a server may wait. The version of the first list
// suffices if the second list shows the deletion.
func TestVersionOfTheSecondList(t *testing.T) {
	page := func(items ...metav1.PartialObjectMetadata) *metav1.PartialObjectMetadataList {
		return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: items}
	}
	there, held := metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		DeletionTimestamp: &metav1.Time{Time: epoch}, Finalizers: []string{"a/b"}}}
	unversioned, many := page(there), page(make([]metav1.PartialObjectMetadata, pageSize+1)...)
	unversioned.ResourceVersion = ""
	many.Continue = "more"
	type answer struct {
		page *metav1.PartialObjectMetadataList
		err  error
	}
	for _, tt := range []struct {
		name    string
		answers []answer
		want    []string // versions of the lists
		left    int64
		fails   bool
	}{
		{"nothing is left", []answer{{page: page(there)}, {page: page()}}, []string{"", "7"}, 0, false},
		{"what is left is being deleted", []answer{{page: page(there)}, {page: page(held)}}, []string{"", "7"}, 1, false},
		{"the server has not seen the deletion yet", []answer{{page: page(there)}, {page: page(there)}, {page: page()}}, []string{"", "7", ""}, 0, false},
		{"a server that will not have it", []answer{{page: page(there)}, {err: apierrors.NewBadRequest("resourceVersionMatch")}, {page: page()}}, []string{"", "7", ""}, 0, false},
		{"no answer", []answer{{page: page(there)}, {err: io.ErrUnexpectedEOF}}, []string{"", "7"}, 0, true},
		{"a list without a version", []answer{{page: unversioned}, {page: page()}}, []string{"", ""}, 0, false},
		{"more than a page", []answer{{page: many}, {page: page()}, {page: page()}}, []string{"", "", ""}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, terminating())
			p := b.newPurger(terminating(), b.states.For("test", terminating().UID))
			var asked []string
			p.client = pagedClient{
				list: func(o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
					if o.ResourceVersion != "" && o.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan {
						t.Errorf("asked for version %s, match %q", o.ResourceVersion, o.ResourceVersionMatch)
					}
					asked = append(asked, o.ResourceVersion)
					a := tt.answers[len(asked)-1]
					return a.page, a.err
				},
				remove: func(string) error { return nil },
			}
			out := p.purge(t.Context(), discovery.Pods)
			if diff := gocmp.Diff(tt.want, asked); diff != "" || out.remaining != tt.left || (out.err != nil) != tt.fails {
				t.Errorf("%d left, error %v\n%s", out.remaining, out.err, diff)
			}
		})
	}
}

// A second DELETE with background propagation removes the finalizers of the garbage collector.
func TestObjectsOfTheGarbageCollectorAreDeleted(t *testing.T) {
	for _, tt := range []struct {
		finalizers []string
		again      bool
	}{
		{[]string{metav1.FinalizerDeleteDependents}, true},
		{[]string{"a/b", metav1.FinalizerOrphanDependents}, true},
		{[]string{"a/b"}, false},
		{nil, false}, // a pod in its grace period
	} {
		for _, collections := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.finalizers, collections), func(t *testing.T) {
				b := newBench(t, terminating())
				page := &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
					Name: "x", UID: "uid-x", DeletionTimestamp: &metav1.Time{Time: epoch}, Finalizers: tt.finalizers}}}}
				removed := 0
				remove := func(string) error {
					removed++
					return nil
				}
				p := b.newPurger(terminating(), b.states.For("test", terminating().UID))
				p.client = pagedClient{list: func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) { return page, nil }, remove: remove, one: remove}
				r := discovery.Pods
				r.DeleteCollection = collections
				out := p.purge(t.Context(), r)
				if want := map[bool]int{true: 1}[tt.again]; removed != want || out.err != nil {
					t.Errorf("deleted %d times, want %d; error %v", removed, want, out.err)
				}
			})
		}
	}
}

func TestPagesShrinkAfterTimeouts(t *testing.T) {
	b := newBench(t, terminating())
	state := b.states.For("test", terminating().UID)
	configMaps := discovery.Type{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, List: true}
	var limits []int64
	for _, err := range []error{context.DeadlineExceeded, apierrors.NewTimeoutError("slow", 1), context.DeadlineExceeded, context.DeadlineExceeded, nil, nil} {
		p := b.newPurger(terminating(), state)
		p.client = pagedClient{list: func(o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			limits = append(limits, o.Limit)
			return &metav1.PartialObjectMetadataList{}, err
		}}
		state.record([]typeResult{p.purge(t.Context(), configMaps)}, epoch)
	}
	if diff := gocmp.Diff([]int64{500, 62, 7, 1, 1, 500}, limits); diff != "" {
		t.Error(diff)
	}
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

// pagedClient supports continue tokens and resource versions, unlike the fake client.
type pagedClient struct {
	metadata.Interface
	metadata.ResourceInterface
	list   func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
	remove func(token string) error
	one    func(name string) error
}

func (c pagedClient) Resource(schema.GroupVersionResource) metadata.Getter { return c }
func (c pagedClient) Namespace(string) metadata.ResourceInterface          { return c }
func (c pagedClient) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return c.list(o)
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

// Deletecollection ends at the first rejection.
func TestOneRejectionBlocksNoOther(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	denied := apierrors.NewForbidden(pods, "a-first", errors.New("admission webhook said no"))
	for _, tt := range []struct {
		name    string
		all     error            // of deletecollection
		each    map[string]error // of delete, by name
		deletes int              // one by one
		says    string           // the error
	}{
		{"one by admission", denied, map[string]error{"00": denied}, 20, "delete pods: 00: "},
		{"one whose webhook is down", apierrors.NewInternalError(errors.New("calling webhook")), map[string]error{"00": denied}, 20, "delete pods: 00: "},
		{"deletecollection only", denied, nil, 20, ""},
		{"all", denied, everything(20, denied), 10, "delete pods: pods \"a-first\""},
		{"none: the server asks for patience", apierrors.NewTooManyRequests("later", 1), nil, 0, "delete pods: later"},
		{"none: no answer", io.ErrUnexpectedEOF, nil, 0, "delete pods: unexpected EOF"},
		{"one by one only, and the connection breaks", denied, everything(20, io.ErrUnexpectedEOF), 1, "unexpected EOF"},
		{"one that cannot be deleted at once", apierrors.NewMethodNotSupported(pods, "delete"), everything(20, denied), 10, "delete pods: 0"},
		{"so many at once take too long", apierrors.NewTimeoutError("slow", 1), nil, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, terminating())
			page := &metav1.PartialObjectMetadataList{}
			for i := range 20 {
				name := fmt.Sprintf("%02d", i)
				page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}})
			}
			p := b.newPurger(terminating(), b.states.For("test", terminating().UID))
			var asked []string
			p.client = pagedClient{
				list:   func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) { return page, nil },
				remove: func(string) error { return tt.all },
				one: func(name string) error {
					asked = append(asked, name)
					return tt.each[name]
				},
			}
			out, _ := p.walk(t.Context(), discovery.Pods, true)
			if (out.err != nil) != (tt.says != "") || out.err != nil && !strings.Contains(out.err.Error(), tt.says) {
				t.Errorf("error %v, want %q", out.err, tt.says)
			}
			if len(asked) != tt.deletes {
				t.Errorf("%d objects deleted one by one, want %d: %v", len(asked), tt.deletes, asked)
			}
		})
	}
}

func everything(n int, err error) map[string]error {
	each := map[string]error{}
	for i := range n {
		each[fmt.Sprintf("%02d", i)] = err
	}
	return each
}
