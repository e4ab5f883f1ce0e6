package leadership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// The texts of client-go v0.37 (tools/leaderelection).
const (
	becameLeader   = "became leader"
	stoppedLeading = "stopped leading"
)

// eventTimeout bounds the wait for one event.
const eventTimeout = 500 * time.Millisecond

// announce writes an event on the Lease, whether ctx has ended or not. A failure is only logged.
func (e *Elector) announce(ctx context.Context, what string) {
	lease, _ := e.lease.current()
	if e.deps.Clients.Events == nil || lease == nil {
		return
	}
	now, source := metav1.NewTime(e.clock.Now()), e.cfg.Identity // kube-controller-manager v1.37 names the source so
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lease.Namespace,
			Name:      fmt.Sprintf("%s.%x", lease.Name, now.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: lease.Namespace,
			Name: lease.Name, UID: lease.UID, ResourceVersion: lease.ResourceVersion,
		},
		Reason: "LeaderElection", Message: source + " " + what, Type: corev1.EventTypeNormal,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: source}, ReportingController: source,
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	if _, err := e.deps.Clients.Events.Events(event.Namespace).Create(bounded, event, metav1.CreateOptions{}); err != nil {
		klog.FromContext(ctx).V(2).Info("Event not written", "message", event.Message, "err", err)
	}
}
