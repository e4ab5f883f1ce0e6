package namespace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/outcome"
)

const (
	finalizeTries = 5                // if other clients change the namespace
	readTimeout   = 10 * time.Second // of one read of the namespace itself
	writeTimeout  = 40 * time.Second // of one write: kube-apiserver v1.37 ends writes after 34 s
)

// readNamespace returns the namespace from etcd, or nil if the namespace is gone.
func (c *Controller) readNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return live.Find(ctx, name, c.Client.CoreV1().Namespaces().Get)
}

// finalize removes our finalizer from the spec. The resource version of ns is a precondition, so a new
// namespace with the same name is safe. After a conflict the content is not listed again: a terminating
// namespace accepts no creates.
func (c *Controller) finalize(ctx context.Context, ns *corev1.Namespace) error {
	for try := 1; ; try++ {
		next := &corev1.Namespace{ObjectMeta: *ns.ObjectMeta.DeepCopy(), Spec: corev1.NamespaceSpec{Finalizers: otherFinalizers(ns)}}
		attempt, cancel := context.WithTimeout(ctx, writeTimeout)
		_, err := c.Client.CoreV1().Namespaces().Finalize(attempt, next, metav1.UpdateOptions{})
		cancel()
		switch {
		case err == nil:
			klog.FromContext(ctx).V(2).Info("Finalized namespace", "namespace", ns.Name)
			return nil
		case outcome.IsNotFound(err, ns.Name):
			return nil
		case !apierrors.IsConflict(err) || try == finalizeTries:
			return fmt.Errorf("finalize: %w", err)
		}
		live, err := c.readNamespace(ctx, ns.Name)
		if err != nil || live == nil || live.UID != ns.UID || !hasOurFinalizer(live) {
			return err
		}
		ns = live
	}
}

// writeConditions updates the conditions if the report changes them, and returns the latest known state.
func (c *Controller) writeConditions(ctx context.Context, ns *corev1.Namespace, r report) (*corev1.Namespace, error) {
	conditions, changed := withConditions(ns.Status.Conditions, r, metav1.NewTime(c.Clock.Now()))
	if !changed {
		return ns, nil
	}
	next := ns.DeepCopy()
	next.Status.Conditions = conditions
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	written, err := c.Client.CoreV1().Namespaces().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	switch {
	case err == nil:
		return written, nil
	case outcome.IsNotFound(err, ns.Name):
		return ns, nil
	default:
		return ns, fmt.Errorf("write conditions: %w", err)
	}
}
