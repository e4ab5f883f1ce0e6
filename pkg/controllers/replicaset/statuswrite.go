package replicaset

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// writeStatus writes the status if it has changed. The counts are those before this sync created or deleted; the events of that bring the
// next one.
func (p *pass) writeStatus(ctx context.Context, claimed claims, a attempt) error {
	c := p.counts(claimed)
	err := p.putStatus(ctx, p.rs, c, a)
	if !apierrors.IsConflict(err) {
		return err
	}
	live, err := p.liveSet(ctx)
	switch {
	case errors.Is(err, errReplaced):
		return nil
	case err != nil:
		return err
	case live.Generation != p.rs.Generation:
		return nil // the numbers were made for another spec; its event brings the next sync
	case !sameNumbers(live.Status, p.rs.Status):
		// They were written by a manager before us, or by ourselves without an answer. Whose pods are newer shows once the cache has them.
		p.ledger.wroteSet(live.ResourceVersion)
		p.again(barrierRecheck)
		return nil
	}
	err = p.putStatus(ctx, live, c, a)
	if apierrors.IsConflict(err) {
		p.again(barrierRecheck) // somebody writes all the time, and each write wakes us
		return nil
	}
	return err
}

func (p *pass) counts(claimed claims) counts {
	terminating := claimed.terminating
	if !p.cfg.TerminatingReplicas || p.ledger.noTerminating {
		terminating = -1
	}
	return count(p.rs, claimed.mine, terminating, p.now)
}

// tellsOtherNumbers reports whether the status will have other numbers than it has.
func (p *pass) tellsOtherNumbers(claimed claims) bool {
	status := statusOf(p.rs.Status, p.rs.Generation, p.counts(claimed), attempt{held: true}, p.now)
	if p.rs.Status.TerminatingReplicas == nil {
		status.TerminatingReplicas = nil // nobody has told that one yet
	}
	return !sameNumbers(p.rs.Status, status)
}

// putStatus writes the status over rs, which must be the version that the API server has.
func (p *pass) putStatus(ctx context.Context, rs *appsv1.ReplicaSet, c counts, a attempt) error {
	status := statusOf(rs.Status, rs.Generation, c, a, p.now)
	if sameStatus(rs.Status, status) {
		return nil
	}
	update := rs.DeepCopy() // marshalling writes to what it is given, and rs may be the cache's
	update.Status = status
	klog.FromContext(ctx).V(4).Info("Updating status", "replicas", c.replicas, "ready", c.ready, "available", c.available, "generation", rs.Generation)
	written, err := p.deps.Client.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil // deleted
	}
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	p.ledger.wroteSet(written.ResourceVersion)
	p.deps.ReplicaSets.Expect(written.ResourceVersion)
	if status.TerminatingReplicas != nil && written.Status.TerminatingReplicas == nil {
		p.ledger.noTerminating = true // the field is off in the API server; do not write it again and again
	}
	return nil
}
