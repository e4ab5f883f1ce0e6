package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/controllers/internal/writelimit"
)

const (
	// Bounds of the writes in flight over all objects; see package writelimit.
	quickWrites = 64
	allWrites   = 300
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
)

// writer sends the writes of the collector and reads single objects.
type writer struct {
	client  metadata.Interface
	clock   clock.WithTicker
	slots   *writelimit.Slots
	dryRun  bool
	metrics *metrics
}

func newWriter(client metadata.Interface, clk clock.WithTicker, dryRun bool, m *metrics) *writer {
	return &writer{client: client, clock: clk, slots: writelimit.New(clk, quickWrites, allWrites), dryRun: dryRun, metrics: m}
}

// sendDecision sends the request of a remove or release decision. When the request can be sent, it calls stillValid.
func (w *writer) sendDecision(ctx context.Context, at apiType, o object, d decision, stillValid func() bool) (requestResult, error) {
	if d.action == release {
		return w.patch(ctx, at, o, o.uid, refPatch(o, d.refs, removed), requestRelease, stillValid)
	}
	options := removal(o, d.policy)
	return w.send(ctx, at, o, o.uid, requestDelete, stillValid, func(ctx context.Context) error {
		return w.client.Resource(at.GroupVersionResource).Namespace(o.namespace).Delete(ctx, o.name, options)
	})
}

// patch sends a JSON patch. Writes with the same account share slots: the UID of an owner or of the object itself.
func (w *writer) patch(ctx context.Context, at apiType, o object, account types.UID, ops []operation, purpose string, stillValid func() bool) (requestResult, error) {
	body, err := json.Marshal(ops)
	if err != nil {
		return failed, err
	}
	return w.send(ctx, at, o, account, purpose, stillValid, func(ctx context.Context) error {
		_, err := w.client.Resource(at.GroupVersionResource).Namespace(o.namespace).Patch(ctx, o.name, types.JSONPatchType, body, metav1.PatchOptions{})
		return err
	})
}

// send is the only function that sends writes. After conflict and invalid, the caller finds out whether the object has
// changed or the request was rejected.
func (w *writer) send(ctx context.Context, at apiType, o object, account types.UID, purpose string, stillValid func() bool, write func(context.Context) error) (requestResult, error) {
	named := func(err error) error {
		return fmt.Errorf("%s %v %q: %w", purpose, at.GroupResource(), o.qualifiedName(), err)
	}
	if err := checkName(o.name); err != nil {
		return rejected, named(fmt.Errorf("%w: %w", errRejected, err))
	}
	slot := w.slots.Acquire(ctx, cache.NewObjectName(o.namespace, string(account)), w.clock.Now().Add(slotTimeout))
	if slot == nil {
		return failed, named(waitError(ctx))
	}
	defer w.slots.Release(slot)
	if !stillValid() {
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
	logger := klog.FromContext(ctx).WithValues("request", purpose, "resource", at.GroupResource(), "object", klog.KRef(o.namespace, o.name), "uid", o.uid)
	switch result {
	case failed:
		return failed, named(err)
	case rejected, conflict, invalid:
		return result, named(fmt.Errorf("%w: %w", errRejected, err))
	case done:
		logger.V(2).Info("Sent request")
	default:
		logger.V(4).Info("Request had no object", "reason", err)
	}
	return result, nil
}

// checkName rejects names that would be another path of the API.
func checkName(name string) error {
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return fmt.Errorf("invalid object name: %s", problems[0])
	}
	return nil
}

func always() bool { return true }

// read returns the object that has the name of o now, or nil if a 404 names the object.
func (w *writer) read(ctx context.Context, at apiType, o object) (*object, error) {
	named := func(err error) error {
		return fmt.Errorf("get %v %q: %w", at.GroupResource(), o.qualifiedName(), err)
	}
	if err := checkName(o.name); err != nil {
		return nil, named(err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := w.client.Resource(at.GroupVersionResource).Namespace(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	switch {
	case err == nil && m.UID == "":
		return nil, named(errors.New("object has no UID"))
	case err == nil:
		now := objectOf(at.GroupResource(), m)
		return &now, nil
	case classifyRead(nil, err, o.name) == missing:
		return nil, nil
	}
	return nil, named(err)
}
