package namespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	writeTries   = 5                // of one write with conflicts
	readTimeout  = 10 * time.Second // of one read of the namespace itself
	writeTimeout = 40 * time.Second // of one write: kube-apiserver v1.37 ends writes after 34 s
)

// readNamespace returns the namespace from etcd, or nil if the namespace is gone.
func (c *Controller) readNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ns, err := c.deps.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get namespace: %w", err)
	default:
		return ns, nil
	}
}

// updateNamespace sends a write of ns. After a conflict it reads the namespace and repeats the write. It returns
// the latest known state, or nil if the namespace is gone or has another UID.
func (c *Controller) updateNamespace(
	ctx context.Context, ns *corev1.Namespace, tries int, write func(context.Context, *corev1.Namespace) (*corev1.Namespace, error),
) (*corev1.Namespace, error) {
	uid := ns.UID
	for try := 1; ; try++ {
		attempt, cancel := context.WithTimeout(ctx, writeTimeout)
		got, err := write(attempt, ns)
		cancel()
		switch {
		case err == nil:
			return got, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err) || try == tries:
			return ns, err
		}
		fresh, err := c.readNamespace(ctx, ns.Name)
		if err != nil {
			return ns, err
		}
		if fresh == nil || fresh.UID != uid {
			return nil, nil
		}
		ns = fresh
	}
}

// finalize removes our finalizer from the spec. The resource version of ns is a precondition, so a new
// namespace with the same name is safe. After a conflict the content is not listed again: a terminating
// namespace accepts no creates.
func (c *Controller) finalize(ctx context.Context, ns *corev1.Namespace) (done bool, err error) {
	_, err = c.updateNamespace(ctx, ns, writeTries, func(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
		if !ourFinalizer(ns) {
			return ns, nil
		}
		next := &corev1.Namespace{ObjectMeta: *ns.ObjectMeta.DeepCopy(), Spec: corev1.NamespaceSpec{Finalizers: otherFinalizers(ns)}}
		written, err := c.deps.Client.CoreV1().Namespaces().Finalize(ctx, next, metav1.UpdateOptions{})
		done = err == nil
		return written, err
	})
	if err != nil {
		return false, fmt.Errorf("finalize: %w", err)
	}
	return done, nil
}

// writeConditions updates the conditions if the report changes them, and returns the latest known state. A
// failure is only logged: the next sync repeats the write.
func (c *Controller) writeConditions(ctx context.Context, ns *corev1.Namespace, r report) *corev1.Namespace {
	now := metav1.NewTime(c.deps.Clock.Now())
	written, err := c.updateNamespace(ctx, ns, 2, func(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
		conditions, changed := withConditions(ns.Status.Conditions, r, now)
		if !changed {
			return ns, nil
		}
		next := ns.DeepCopy()
		next.Status.Conditions = conditions
		return c.deps.Client.CoreV1().Namespaces().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		klog.FromContext(ctx).Error(err, "Failed to write conditions", "namespace", ns.Name)
	}
	if written != nil {
		return written
	}
	return ns
}
