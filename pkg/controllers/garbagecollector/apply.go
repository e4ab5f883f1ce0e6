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

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
)

const (
	// How many writes are in flight at most, over all objects; see package writelimit. A namespace alone has half of the quick ones, and an owner whose dependents
	// are patched a third: more does not make a small API server faster.
	quickWrites = 64
	allWrites   = 300
	// writesAtOnce is how many dependents of one owner are patched at once.
	writesAtOnce = 32
	// writeTimeout is for one write: kube-apiserver v1.37 ends each after 34 s, and until then admission may just be slow.
	writeTimeout = 40 * time.Second
	// tries is how often an object is read and decided about anew because it was not as it had been seen, before it has to wait for its turn again.
	tries = 8
)

// What requests are for; labels of metrics.
const (
	requestDelete   = "delete"
	requestRelease  = "release"
	requestOrphan   = "orphan"
	requestUnblock  = "unblock"
	requestFinalize = "finalize"
)

// More outcomes, of writes that were not sent.
const outdated requestResult = "outdated" // what it was decided on is too old by now

// writer sends what was decided: one request at a time for each object, and so many for all.
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

// remove deletes an object. It calls still when the request can be sent, and sends nothing if the decision no longer holds.
func (w *writer) remove(ctx context.Context, at apiType, o object, policy metav1.DeletionPropagation, still func() bool) (requestResult, error) {
	options := removal(o, policy)
	return w.send(ctx, at, o, o.uid, requestDelete, still, func(ctx context.Context) error {
		return w.client.Resource(at.GroupVersionResource).Namespace(o.namespace).Delete(ctx, o.name, options)
	}, "policy", policy)
}

// patch changes the metadata of an object. Writes with the same account, the UID of an owner or of the object itself, share slots. what is one of the request
// constants. See remove for still.
func (w *writer) patch(ctx context.Context, at apiType, o object, account types.UID, ops []operation, what string, still func() bool) (requestResult, error) {
	body, err := json.Marshal(ops)
	if err != nil {
		return failed, err
	}
	return w.send(ctx, at, o, account, what, still, func(ctx context.Context) error {
		_, err := w.client.Resource(at.GroupVersionResource).Namespace(o.namespace).Patch(ctx, o.name, types.JSONPatchType, body, metav1.PatchOptions{})
		return err
	})
}

// errRejected is what a write was answered that asking again soon will not help. A write that a dry run does not send counts as rejected.
var (
	errRejected = errors.New("rejected")
	errDryRun   = errors.New("dry run, not sent")
)

// send is the only place that sends writes. It returns an error if ctx has ended, or the write failed or was rejected. After conflict and invalid the caller
// finds out whether the object has changed or the change was rejected.
func (w *writer) send(ctx context.Context, at apiType, o object, account types.UID, what string, still func() bool, write func(context.Context) error, details ...any) (requestResult, error) {
	if err := usable(o.name); err != nil {
		return rejected, fmt.Errorf("%s %v %q: %w: %w", what, at.GroupResource(), named(o), errRejected, err)
	}
	slot := w.slots.Acquire(ctx, cache.NewObjectName(o.namespace, string(account)), w.clock.Now().Add(turnPatience))
	if slot == nil {
		return failed, fmt.Errorf("%s %v %q: %w", what, at.GroupResource(), named(o), noSlot(ctx))
	}
	defer w.slots.Release(slot)
	if !still() {
		return outdated, nil
	}
	logger := klog.FromContext(ctx).WithValues("resource", at.GroupResource(), "object", klog.KRef(o.namespace, o.name), "uid", o.uid)
	if w.dryRun {
		w.metrics.dryRun.WithLabelValues(what).Inc()
		return rejected, fmt.Errorf("%s %v %q: %w: %w", what, at.GroupResource(), named(o), errRejected, errDryRun)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := write(ctx)
	got := outcomeOf(err, o.name)
	if what == requestDelete && got == invalid { // a DELETE has no tests that could fail: a policy denies it
		got = rejected
	}
	w.metrics.requests.WithLabelValues(what, string(got)).Inc()
	switch got {
	case failed:
		return failed, fmt.Errorf("%s %v %q: %w", what, at.GroupResource(), named(o), err)
	case rejected, conflict, invalid:
		return got, fmt.Errorf("%s %v %q: %w: %w", what, at.GroupResource(), named(o), errRejected, err)
	case done:
		logger.V(2).Info("Request was done", append([]any{"request", what}, details...)...)
	default:
		logger.V(4).Info("Request was not done", append([]any{"request", what, "outcome", got, "reason", err}, details...)...)
	}
	return got, nil
}

// errBusy is what a sync ends with that has waited for its turn for too long. It is no failure: the key is tried again, as if the sync had been cut short.
var errBusy = fmt.Errorf("others are in line: %w", context.Canceled)

// noSlot is why there was no slot, or no place, for a request.
func noSlot(ctx context.Context) error {
	switch {
	case controller.Draining(ctx):
		return controller.ErrDraining
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errBusy
}

// usable is an error for what cannot be the name of an object, and would be another path: no request is made of it.
func usable(name string) error {
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return fmt.Errorf("no object has this name: it %s", problems[0])
	}
	return nil
}

// always is for writes that do not depend on how old something is.
func always() bool { return true }

// read shows the object that has a name now; says is found or missing. An answer that tells neither is an error.
func (w *writer) read(ctx context.Context, at apiType, o object) (now object, says saying, err error) {
	if err := usable(o.name); err != nil {
		return object{}, unable, fmt.Errorf("get %v %q: %w", at.GroupResource(), named(o), err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := w.client.Resource(at.GroupVersionResource).Namespace(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	var got metav1.Object
	if err == nil {
		got = m
	}
	switch says = sayingOf(got, err, o.name); says {
	case missing:
		return object{}, missing, nil
	case found:
		return objectOf(at.GroupResource(), m), found, nil
	}
	if err == nil {
		err = errors.New("the answer has no UID")
	}
	return object{}, says, fmt.Errorf("get %v %q: %w", at.GroupResource(), named(o), err)
}
