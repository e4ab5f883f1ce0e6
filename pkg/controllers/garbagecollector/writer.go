package garbagecollector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/controllers/internal/writelimit"
	"minikcm/pkg/outcome"
)

const (
	// writesInFlight is the maximum over all objects; see package writelimit.
	writesInFlight = 150
	// writeTimeout is longer than the 34 s after which kube-apiserver v1.37 ends a write.
	writeTimeout = 40 * time.Second
)

// Purposes of requests; labels of metrics.
const (
	requestDelete   = "delete"
	requestRelease  = "release"
	requestOrphan   = "orphan"
	requestUnblock  = "unblock"
	requestFinalize = "finalize"
)

var (
	// errRejected wraps errors of writes whose early repetition is useless, and of those that a dry run does not send.
	errRejected = errors.New("rejected")
	errDryRun   = errors.New("dry run, not sent")
	errName     = errors.New("object name is . or .., or contains / or %")
)

// writer sends the writes of the collector.
type writer struct {
	client  metadata.Interface
	clock   clock.WithTicker
	slots   *writelimit.Slots
	dryRun  bool
	metrics *metrics
}

// delete deletes an object. The preconditions guarantee the UID, references and finalizers of the decision.
func (w *writer) delete(ctx context.Context, t apiType, o object, policy metav1.DeletionPropagation, stillValid func() bool) (requestResult, error) {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.uid}, PropagationPolicy: &policy}
	if o.version != "" {
		options.Preconditions.ResourceVersion = &o.version
	}
	return w.send(ctx, t, o, o.uid, requestDelete, stillValid, func(ctx context.Context) error {
		return w.client.Resource(t.GroupVersionResource).Namespace(o.namespace).Delete(ctx, o.name, options)
	})
}

// patch sends a JSON patch. Writes with the same account share slots: the UID of an owner or of the object itself.
func (w *writer) patch(ctx context.Context, t apiType, o object, account types.UID, ops []operation,
	purpose string, stillValid func() bool) (requestResult, error) {
	body, _ := json.Marshal(ops)
	return w.send(ctx, t, o, account, purpose, stillValid, func(ctx context.Context) error {
		_, err := w.client.Resource(t.GroupVersionResource).Namespace(o.namespace).Patch(ctx, o.name, types.JSONPatchType, body, metav1.PatchOptions{})
		return err
	})
}

// send is the only function that sends writes. A request that is not stillValid when it can be sent is outdated.
// After conflict and invalid, the caller finds out whether the object has changed or the request was rejected.
func (w *writer) send(ctx context.Context, t apiType, o object, account types.UID, purpose string,
	stillValid func() bool, write func(context.Context) error) (requestResult, error) {
	named := func(err error) error {
		return fmt.Errorf("%s %v %q: %w", purpose, t.GroupResource(), o.qualifiedName(), err)
	}
	if len(content.IsPathSegmentName(o.name)) > 0 { // the request would go to another path
		return rejected, named(fmt.Errorf("%w: %w", errRejected, errName))
	}
	slot := w.slots.Acquire(ctx, cache.NewObjectName(o.namespace, string(account)), w.clock.Now().Add(slotTimeout))
	if slot == nil {
		return failed, named(cmp.Or(context.Cause(ctx), errBusy))
	}
	defer w.slots.Release(slot)
	if stillValid != nil && !stillValid() {
		return outdated, nil
	}
	if w.dryRun {
		w.metrics.dryRun.WithLabelValues(purpose).Inc()
		return rejected, named(fmt.Errorf("%w: %w", errRejected, errDryRun))
	}
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := write(limited)
	result := classifyWrite(err, o.name)
	if purpose == requestDelete && result == invalid { // denied by a policy, as a DELETE has no tests
		result = rejected
	}
	w.metrics.requests.WithLabelValues(purpose, string(result)).Inc()
	switch result {
	case failed:
		return failed, named(err)
	case rejected, conflict, invalid:
		return result, named(fmt.Errorf("%w: %w", errRejected, err))
	}
	klog.FromContext(ctx).V(2).Info("Sent request", "request", purpose, "resource", t.GroupResource(),
		"object", klog.KRef(o.namespace, o.name), "uid", o.uid, "result", result)
	return result, nil
}

// operation is one step of a JSON patch. The API server rejects a failed test with 422, and repeats a patch without a
// version after concurrent changes.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func test(path string, value any) operation { return operation{"test", path, value} }

// refsAtOnce bounds the references in one patch: kube-apiserver v1.37 accepts 10,000 operations.
const refsAtOnce = 1000

// refPatch returns a patch of references, or nil without references. The positions are in ascending order.
func refPatch(o object, refs []int, change func(path string) operation) []operation {
	if len(refs) == 0 {
		return nil
	}
	ops := []operation{test("/metadata/uid", o.uid)}
	for _, n := range slices.Backward(refs[:min(len(refs), refsAtOnce)]) {
		r, path := o.refs[n], fmt.Sprintf("/metadata/ownerReferences/%d", n)
		ops = append(ops, test(path+"/uid", r.uid), test(path+"/name", r.name),
			test(path+"/kind", r.kind), test(path+"/apiVersion", r.apiVersion), change(path))
	}
	return ops
}

func removed(path string) operation   { return operation{Op: "remove", Path: path} }
func unblocked(path string) operation { return operation{"add", path + "/blockOwnerDeletion", false} }

// finalizerPatch removes a finalizer from a live object. It returns nil if the object does not have the finalizer.
func finalizerPatch(o object, finalizer string) []operation {
	n := slices.Index(o.finalizers, finalizer)
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
	case s.Code == http.StatusBadRequest, s.Code == http.StatusForbidden,
		s.Code == http.StatusMethodNotAllowed, s.Code == http.StatusUnsupportedMediaType:
		return rejected
	}
	return failed
}
