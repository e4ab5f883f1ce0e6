package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"minikcm/internal/fakeapi"
)

func TestPatches(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	live := objectOf(things, newThing("a", "c", "self").at("7").owned(blockingRef("v1", "Node", "n", "one"), ref("apps/v1", "ReplicaSet", "m", "two")).finalizedBy("x/y", "orphan"))
	cached := live
	cached.live, cached.finalizers = false, nil
	const (
		self  = `{"op":"test","path":"/metadata/uid","value":"self"}`
		first = `{"op":"test","path":"/metadata/ownerReferences/0/uid","value":"one"},{"op":"test","path":"/metadata/ownerReferences/0/name","value":"n"},` +
			`{"op":"test","path":"/metadata/ownerReferences/0/kind","value":"Node"},{"op":"test","path":"/metadata/ownerReferences/0/apiVersion","value":"v1"}`
		second = `{"op":"test","path":"/metadata/ownerReferences/1/uid","value":"two"},{"op":"test","path":"/metadata/ownerReferences/1/name","value":"m"},` +
			`{"op":"test","path":"/metadata/ownerReferences/1/kind","value":"ReplicaSet"},{"op":"test","path":"/metadata/ownerReferences/1/apiVersion","value":"apps/v1"}`
	)
	for _, tt := range []struct {
		name  string
		patch []operation
		want  string
	}{
		{"the last reference goes first", refPatch(live, []int{0, 1}, removed),
			self + "," + second + `,{"op":"remove","path":"/metadata/ownerReferences/1"},` + first + `,{"op":"remove","path":"/metadata/ownerReferences/0"}`},
		{"unblock", refPatch(cached, []int{0}, unblocked), self + "," + first + `,{"op":"add","path":"/metadata/ownerReferences/0/blockOwnerDeletion","value":false}`},
		{"finalizer", finalizerPatch(live, "orphan"), self + `,{"op":"test","path":"/metadata/finalizers/1","value":"orphan"},{"op":"remove","path":"/metadata/finalizers/1"}`},
		{"finalizer that the object does not have", finalizerPatch(live, "foregroundDeletion"), ""},
	} {
		want := "[" + tt.want + "]"
		if tt.want == "" {
			want = "null"
		}
		fakeapi.Want(t, tt.name, string(fakeapi.Must(json.Marshal(tt.patch))), want)
	}
}

func TestPatchesHaveAtMostTenThousandOperations(t *testing.T) {
	refs, all := make([]reference, 3000), make([]int, 3000)
	for n := range all {
		all[n] = n
	}
	if got := len(refPatch(object{refs: refs}, all, removed)); got != 1+5*refsAtOnce || got > 10_000 {
		t.Errorf("patch has %d operations, want %d", got, 1+5*refsAtOnce)
	}
}

func TestClassifyWrite(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "widgets"}
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
		{"a test of the patch failed", apierrors.NewGenericServerResponse(422, "patch", things, "c", "testing value /metadata/uid failed", 0, false), invalid},
		{"this kind of patch is not known", apierrors.NewGenericServerResponse(415, "patch", things, "c", "", 0, true), rejected},
		{"forbidden", apierrors.NewForbidden(things, "c", errors.New("no")), rejected},
		{"a bad request", apierrors.NewBadRequest("no"), rejected},
		{"a verb that it does not have", apierrors.NewMethodNotSupported(things, "delete"), rejected},
		{"not authenticated", apierrors.NewUnauthorized("no"), failed},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), failed},
		{"admission webhook away", apierrors.NewInternalError(errors.New("failed calling webhook")), failed},
		{"no response", context.DeadlineExceeded, failed},
	} {
		fakeapi.Want(t, tt.name, classifyWrite(tt.err, "c"), tt.want)
	}
}
