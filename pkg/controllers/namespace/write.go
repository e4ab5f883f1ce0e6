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
	writeTries   = 5                // of one write that meets conflicts
	readTimeout  = 10 * time.Second // of one read of the namespace itself
	writeTimeout = 40 * time.Second // of one write of it: kube-apiserver v1.37 ends each after 34 s, and until then admission may just be slow
)

// errRetry: conflicts outlasted the tries. The key is synced again soon, and nothing is logged.
var errRetry = errors.New("namespace keeps changing")

// read returns the namespace as it is in etcd now, nil if it is gone.
func (c *Controller) read(ctx context.Context, name string) (*corev1.Namespace, error) {
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

// update sends a write of ns and, if it meets a conflict, reads the namespace again and repeats it. It returns the newest state
// known and nil if the namespace is gone, or is another one of the same name by now.
func (c *Controller) update(
	ctx context.Context, ns *corev1.Namespace, tries int, write func(context.Context, *corev1.Namespace) (*corev1.Namespace, error),
) (*corev1.Namespace, error) {
	uid := ns.UID
	for range tries {
		attempt, cancel := context.WithTimeout(ctx, writeTimeout)
		got, err := write(attempt, ns)
		cancel()
		switch {
		case err == nil:
			return got, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err):
			return ns, err
		}
		fresh, err := c.read(ctx, ns.Name)
		if err != nil {
			return ns, err
		}
		if fresh == nil || fresh.UID != uid {
			return nil, nil
		}
		ns = fresh
	}
	return ns, errRetry
}

// finalize removes our token from spec.finalizers. The resource version of ns is a precondition, so a namespace that was
// replaced by another of the same name is safe. The content is not looked at again after a conflict: nothing can have come.
func (c *Controller) finalize(ctx context.Context, ns *corev1.Namespace) (done bool, err error) {
	_, err = c.update(ctx, ns, writeTries, func(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
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

// writeConditions brings the conditions up to date if the report changes them, and returns the newest state known. A failure is only logged:
// an Event and metrics say the same, and the next pass tries again.
func (c *Controller) writeConditions(ctx context.Context, ns *corev1.Namespace, r report) *corev1.Namespace {
	now := metav1.NewTime(c.deps.Clock.Now())
	written, err := c.update(ctx, ns, 2, func(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
		conditions, changed := withConditions(ns.Status.Conditions, r, now)
		if !changed {
			return ns, nil
		}
		next := ns.DeepCopy()
		next.Status.Conditions = conditions
		return c.deps.Client.CoreV1().Namespaces().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		klog.FromContext(ctx).Error(err, "Conditions not written", "namespace", ns.Name)
	}
	if written != nil {
		return written
	}
	return ns
}
