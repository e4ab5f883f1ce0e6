package garbagecollector

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/outcome"
)

// removal returns the options of a DELETE. The preconditions guarantee the UID, references and finalizers that the
// decision was based on.
func removal(o object, policy metav1.DeletionPropagation) metav1.DeleteOptions {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.uid}, PropagationPolicy: &policy}
	if o.version != "" {
		options.Preconditions.ResourceVersion = &o.version
	}
	return options
}

// needsLive reports whether an object has to be read before its deletion: its API may ignore preconditions, or its
// version is unknown.
func needsLive(o object, local bool) bool { return o.live == nil && (!local || o.version == "") }

// operation is one step of a JSON patch. The API server rejects a failed test with 422, and repeats a patch without a
// version after concurrent changes.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func test(path string, value any) operation { return operation{"test", path, value} }

const (
	// refsAtOnce bounds the references in one patch: kube-apiserver v1.37 accepts 10,000 operations.
	refsAtOnce = 1000
	fullPatch  = 1 + 5*refsAtOnce
)

// refPatch returns a patch of references. Their positions are in ascending order.
func refPatch(o object, refs []int, change func(path string) operation) []operation {
	ops := []operation{test("/metadata/uid", o.uid)}
	for _, n := range slices.Backward(refs[:min(len(refs), refsAtOnce)]) {
		r, path := o.refs[n], fmt.Sprintf("/metadata/ownerReferences/%d", n)
		ops = append(ops, test(path+"/uid", r.uid), test(path+"/name", r.name), test(path+"/kind", r.kind), test(path+"/apiVersion", r.apiVersion), change(path))
	}
	return ops
}

func removed(path string) operation   { return operation{Op: "remove", Path: path} }
func unblocked(path string) operation { return operation{"add", path + "/blockOwnerDeletion", false} }

// finalizerPatch removes a finalizer from a live object. It returns nil if the object does not have the finalizer.
func finalizerPatch(o object, finalizer string) []operation {
	n := slices.Index(o.live.Finalizers, finalizer)
	if n < 0 {
		return nil
	}
	path := fmt.Sprintf("/metadata/finalizers/%d", n)
	return []operation{test("/metadata/uid", o.uid), test(path, finalizer), removed(path)}
}

// requestResult classifies the result of a write.
type requestResult string

const (
	done     requestResult = "done"
	gone     requestResult = "gone"     // a 404 that names the object
	conflict requestResult = "conflict" // the object has changed
	invalid  requestResult = "invalid"  // 422: a test of the patch failed, or the API server rejected the change
	rejected requestResult = "rejected" // by a policy, or a permission is missing
	failed   requestResult = "failed"
	outdated requestResult = "outdated" // not sent: the decision no longer holds
)

// classifyWrite treats a lost response as a failure: every write may be repeated.
func classifyWrite(err error, name string) requestResult {
	var status apierrors.APIStatus
	if outcome.FromError(err) == outcome.Done {
		return done
	}
	if !errors.As(err, &status) {
		return failed
	}
	switch s := status.Status(); {
	case outcome.IsNotFound(err, name):
		return gone
	case s.Code == http.StatusConflict && s.Reason == metav1.StatusReasonConflict:
		return conflict
	case s.Code == http.StatusUnprocessableEntity:
		return invalid
	case s.Code == http.StatusBadRequest, s.Code == http.StatusForbidden, s.Code == http.StatusMethodNotAllowed, s.Code == http.StatusUnsupportedMediaType:
		return rejected
	}
	return failed
}
