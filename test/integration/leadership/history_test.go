package leadership

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
)

// leaseChange is one successful write to the Lease.
type leaseChange struct {
	user             string
	holder           string // "" if it was released or deleted
	deleted          bool
	received, answer time.Time
}

// leaseChanges returns the writes to the Lease in the order of their answers.
func leaseChanges(t *testing.T) []leaseChange {
	t.Helper()
	var changes []leaseChange
	for _, e := range here(t).AuditLog(t).Where(controlplane.Completed, controlplane.Writes, controlplane.ByResource("leases"), controlplane.ByNamespace(leaseSpace), succeeded) {
		if e.ObjectRef.Name != leaseName && e.Verb != "create" {
			continue
		}
		c := leaseChange{user: e.User.Username, deleted: e.Verb == "delete", received: e.RequestReceivedTimestamp.Time, answer: e.StageTimestamp.Time}
		if !c.deleted {
			var lease coordinationv1.Lease
			if e.RequestObject == nil || json.Unmarshal(e.RequestObject.Raw, &lease) != nil {
				t.Fatalf("audit event without the Lease that was sent: %v", e.AuditID)
			}
			if lease.Name != leaseName {
				continue
			}
			if lease.Spec.HolderIdentity != nil {
				c.holder = *lease.Spec.HolderIdentity
			}
		}
		changes = append(changes, c)
	}
	return changes
}

func succeeded(e *auditv1.Event) bool { return e.ResponseStatus != nil && e.ResponseStatus.Code < 300 }

// writes returns what a user changed in the cluster, other than Leases and events.
func writes(t *testing.T, user string) controlplane.AuditEvents {
	t.Helper()
	return here(t).AuditLog(t).Where(controlplane.Completed, controlplane.Writes, controlplane.ByUser(user), succeeded,
		controlplane.ByResource("pods", "replicasets/status"))
}

// checkOneWriter fails if any of the users sent a write that the API server received after it had answered somebody else's taking of the
// Lease, or its release, and before the user had taken it again. A Lease that was deleted by hand is nobody else's yet.
func checkOneWriter(t *testing.T, users ...string) {
	t.Helper()
	changes := slices.DeleteFunc(leaseChanges(t), func(c leaseChange) bool { return c.deleted })
	for _, user := range users {
		for _, w := range writes(t, user) {
			if holder, ok := holderAt(changes, w.RequestReceivedTimestamp.Time); ok && holder.user != user || ok && holder.holder == "" {
				t.Errorf("%s sent %s %s at %v, when the lease had been last written by %s (holder %q) at %v", user, w.Verb, w.ObjectRef.Name,
					w.RequestReceivedTimestamp.Format(time.StampMicro), holder.user, holder.holder, holder.answer.Format(time.StampMicro))
			}
		}
	}
}

// holderAt returns the last change that was answered before a moment.
func holderAt(changes []leaseChange, at time.Time) (last leaseChange, ok bool) {
	for _, c := range changes {
		if c.answer.Before(at) {
			last, ok = c, true
		}
	}
	return last, ok
}
