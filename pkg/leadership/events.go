package leadership

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The texts of client-go v0.37 (tools/leaderelection).
const (
	becameLeader   = "became leader"
	stoppedLeading = "stopped leading"
)

// announce writes an event on the Lease.
func (e *Elector) announce(what string) {
	lease, _ := e.lease.current()
	if e.recorder == nil || lease == nil {
		return
	}
	subject := &coordinationv1.Lease{ObjectMeta: lease.ObjectMeta}
	subject.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	e.recorder.Eventf(subject, corev1.EventTypeNormal, "LeaderElection", "%s %s", e.cfg.Identity, what)
}

// leaseEvents writes the few events of the election one by one and waits for each, so that their order
// among other requests is fixed. A failure is only logged: an event is not worth a term.
type leaseEvents struct {
	client corev1client.EventsGetter
	clock  clock.PassiveClock
}

// eventTimeout bounds the wait for one event.
const eventTimeout = 500 * time.Millisecond

// Eventf implements resourcelock.EventRecorder.
func (r *leaseEvents) Eventf(obj runtime.Object, eventType, reason, message string, args ...any) {
	object, err := meta.Accessor(obj)
	if err != nil {
		klog.Background().Error(err, "Event about an object without metadata", "reason", reason)
		return
	}
	now, kind := metav1.NewTime(r.clock.Now()), obj.GetObjectKind().GroupVersionKind()
	text := fmt.Sprintf(message, args...)
	source, _, _ := strings.Cut(text, " ") // the identity, as kube-controller-manager v1.37 names the source
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: object.GetNamespace(),
			Name:      fmt.Sprintf("%s.%x", object.GetName(), now.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: object.GetNamespace(),
			Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		},
		Reason: reason, Message: text, Type: eventType,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: source}, ReportingController: source,
	}
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	if _, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		klog.Background().V(2).Info("Event not written", "message", text, "err", err)
	}
}
