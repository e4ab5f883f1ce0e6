package garbagecollector

import (
	"context"
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestPatches(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	one, two := blockingRef("v1", "Node", "n", "one"), ref("v1", "Node", "m", "two")
	one.Controller = new(true)
	live := objectOf(things, newThing("a", "c", "self").at("7").owned(one, two).finalizedBy("x/y", "orphan"))
	cached := live
	cached.live = nil
	twice := objectOf(things, newThing("a", "c", "self").at("7").owned(one, one))
	for _, tt := range []struct {
		name  string
		patch func() (patch, error)
		as    types.PatchType
		want  string // empty: an error
	}{
		{"take a reference away from a built-in type", func() (patch, error) { return without(cached, patchable(cached, true), []int{0}) }, types.StrategicMergePatchType,
			`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"one"}],"uid":"self"}}`},
		{"take one away that was decided about: it may just be put right", func() (patch, error) { return released(cached, patchable(cached, true), []int{0}) }, types.StrategicMergePatchType,
			`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"one"}],"resourceVersion":"7","uid":"self"}}`},
		{"from a custom resource, too", func() (patch, error) { return released(live, patchable(live, false), []int{0}) }, types.MergePatchType,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"m","uid":"two"}],"resourceVersion":"7","uid":"self"}}`},
		{"from a custom resource", func() (patch, error) { return without(live, patchable(live, false), []int{0}) }, types.MergePatchType,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"m","uid":"two"}],"resourceVersion":"7","uid":"self"}}`},
		{"from one that was not read", func() (patch, error) { return without(cached, patchable(cached, false), []int{0}) }, "", ""},
		{"take all away", func() (patch, error) { return without(live, patchable(live, false), []int{0, 1}) }, types.MergePatchType,
			`{"metadata":{"ownerReferences":[],"resourceVersion":"7","uid":"self"}}`},
		{"one of two with the same UID", func() (patch, error) { return without(twice, patchable(twice, true), []int{0}) }, types.MergePatchType,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"one","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"7","uid":"self"}}`},
		{"unblock one of a built-in type", func() (patch, error) { return unblocked(cached, patchable(cached, true), []int{0}) }, types.StrategicMergePatchType,
			`{"metadata":{"ownerReferences":[{"blockOwnerDeletion":false,"uid":"one"}],"resourceVersion":"7","uid":"self"}}`},
		{"of a custom resource", func() (patch, error) { return unblocked(live, patchable(live, false), []int{0}) }, types.MergePatchType,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"one","controller":true,"blockOwnerDeletion":false},` +
				`{"apiVersion":"v1","kind":"Node","name":"m","uid":"two"}],"resourceVersion":"7","uid":"self"}}`},
		{"of one that was not read", func() (patch, error) { return unblocked(cached, patchable(cached, false), []int{0}) }, "", ""},
		{"take a finalizer away", func() (patch, error) { return finalized(live, "orphan") }, types.MergePatchType,
			`{"metadata":{"finalizers":["x/y"],"resourceVersion":"7","uid":"self"}}`},
		{"of an object that was not read", func() (patch, error) { return finalized(cached, "orphan") }, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.patch()
			if (err != nil) != (tt.want == "") || errors.Is(err, errNotLive) != (tt.want == "") || string(got.body) != tt.want || got.as != tt.as {
				t.Errorf("patch is %s %s (%v), want %s %s", got.as, got.body, err, tt.as, tt.want)
			}
		})
	}
	if refs := live.live.OwnerReferences; *refs[0].BlockOwnerDeletion != true {
		t.Error("the object that was read has been changed")
	}
}

func TestRemovalCarriesWhatWasSeen(t *testing.T) {
	o := object{uid: "u", version: "7"}
	got := removal(o, metav1.DeletePropagationForeground, false)
	if p := got.Preconditions; *p.UID != "u" || *p.ResourceVersion != "7" || *got.PropagationPolicy != "Foreground" || got.GracePeriodSeconds != nil {
		t.Errorf("options are %v, want the UID, the version, the policy, and the grace of the object itself", got)
	}
	if p := removal(object{uid: "u"}, metav1.DeletePropagationForeground, false).Preconditions; *p.UID != "u" || p.ResourceVersion != nil {
		t.Errorf("preconditions of what has no version are %v, want the UID", p)
	}
	for _, tt := range []struct {
		name  string
		o     object
		local bool
		want  bool
	}{
		{"of the API server's own", o, true, false},
		{"of another server, which may not keep to preconditions", o, false, true},
		{"of another server, read live", object{uid: "u", version: "7", live: &metav1.ObjectMeta{}}, false, false},
		{"without a version that is a number", object{uid: "u"}, true, true},
	} {
		if got := needsLive(tt.o, tt.local); got != tt.want {
			t.Errorf("%s: to be read first: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// What goes without a version must not say how dependents go, either: it would replace what a user has just said.
func TestRemovalByUIDSaysNoMoreThanTheUID(t *testing.T) {
	const (
		background = metav1.DeletePropagationBackground
		inFront    = metav1.DeletePropagationForeground
		letting    = metav1.DeletePropagationOrphan
	)
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for _, tt := range []struct {
		name   string
		marks  marks
		of     schema.GroupResource
		policy metav1.DeletionPropagation
		bare   bool
	}{
		{"as all go", 0, schema.GroupResource{}, background, true},
		{"of a type that makes orphans if nothing is said", 0, jobs, background, false},
		{"as its finalizer says", orphaning, jobs, letting, true},
		{"as its other finalizer says", foreground, jobs, inFront, true},
		{"against its finalizer", orphaning, jobs, inFront, false},
		{"because its owner waits", 0, schema.GroupResource{}, inFront, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := removal(object{resource: tt.of, uid: "u", version: "7", marks: seen | tt.marks}, tt.policy, true)
			if bare := got.PropagationPolicy == nil && got.Preconditions.ResourceVersion == nil; bare != tt.bare || *got.Preconditions.UID != "u" {
				t.Errorf("options are %v; with the UID alone: want %v", got, tt.bare)
			}
			if !tt.bare && (*got.PropagationPolicy != tt.policy || *got.Preconditions.ResourceVersion != "7") {
				t.Errorf("options are %v, want the version and %s", got, tt.policy)
			}
		})
	}
}

func TestOutcome(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	invalid := func(field string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Details: &metav1.StatusDetails{Name: "c", Causes: []metav1.StatusCause{{Field: field}}}}}
	}
	for _, tt := range []struct {
		name string
		err  error
		want requestResult
	}{
		{"done", nil, done},
		{"not found", apierrors.NewNotFound(things, "c"), gone},
		{"404 of a server that does not know the type", apierrors.NewGenericServerResponse(404, "delete", things, "c", "404 page not found", 0, true), failed},
		{"conflict", apierrors.NewConflict(things, "c", errors.New("version")), conflict},
		{"409 for another reason", apierrors.NewAlreadyExists(things, "c"), failed},
		{"another UID", invalid("metadata.uid"), gone},
		{"invalid otherwise", invalid("metadata.ownerReferences"), rejected},
		{"this kind of patch is not known", apierrors.NewGenericServerResponse(415, "patch", things, "c", "", 0, true), unfit},
		{"forbidden", apierrors.NewForbidden(things, "c", errors.New("no")), rejected},
		{"a bad request", apierrors.NewBadRequest("no"), rejected},
		{"a verb that it does not have", apierrors.NewMethodNotSupported(things, "delete"), rejected},
		{"not authenticated", apierrors.NewUnauthorized("no"), failed},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), failed},
		{"admission webhook away", apierrors.NewInternalError(errors.New("failed calling webhook")), failed},
		{"no answer", context.DeadlineExceeded, failed},
	} {
		if got := outcomeOf(tt.err, "c"); got != tt.want {
			t.Errorf("%s: outcome is %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAfterConflict(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	owner := ref("v1", "Node", "n", "one")
	obj := func() *thing { return newThing("a", "c", "self").at("7").owned(owner) }
	was := objectOf(things, obj())
	for _, tt := range []struct {
		name string
		now  *thing
		nth  int
		want retry
	}{
		{"only its version is another", obj().at("8"), 1, repeat},
		{"again", obj().at("9"), 2, repeat},
		{"and again", obj().at("10"), 3, repeatByUID},
		{"it has another owner", obj().owned(owner, ref("v1", "Node", "m", "two")), 3, decideAnew},
		{"it has none", obj().owned(), 3, decideAnew},
		{"its reference blocks now", obj().owned(blockingRef("v1", "Node", "n", "one")), 1, decideAnew},
		{"it is to be orphaned now", obj().finalizedBy("orphan"), 1, decideAnew},
		{"somebody holds it now", obj().finalizedBy("x/y"), 1, decideAnew},
		{"it is being deleted", obj().deleted(), 3, decideAnew},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := afterConflict(was, objectOf(things, tt.now), tt.nth); got != tt.want {
				t.Errorf("it goes on with %q, want %q", got, tt.want)
			}
		})
	}
}
