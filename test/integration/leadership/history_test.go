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
	for _, e := range here(t).AuditLogSince(t, here(t).since, controlplane.Completed, controlplane.Writes, controlplane.ByResource("leases"),
		controlplane.ByNamespace(leaseSpace), succeeded) {
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

// writes returns what a user asked to change in the cluster, other than Leases and events.
func writes(t *testing.T, user string, matches ...controlplane.AuditMatch) controlplane.AuditEvents {
	t.Helper()
	return here(t).AuditLogSince(t, here(t).since, append(matches, controlplane.Writes, controlplane.ByUser(user),
		controlplane.ByResource("pods", "pods/status", "replicasets", "replicasets/status"))...)
}

// byHand is how long a leader may write on after the event that somebody outside the election took its lease.
const byHand = 100 * time.Millisecond

// judge fails if any of the contenders
//
//   - sent a write, successful or not, that the API server received after it had answered somebody else's taking of the Lease, or its
//     release, and before the contender had taken it again. A Lease that was deleted by hand is nobody else's yet;
//   - deleted a pod: there is never one too many.
func judge(t *testing.T, contenders ...*contender) {
	t.Helper()
	changes := slices.DeleteFunc(leaseChanges(t), func(c leaseChange) bool { return c.deleted })
	manager := map[string]bool{}
	for _, c := range contenders {
		manager[c.user] = true
	}
	for _, c := range contenders {
		for _, w := range writes(t, c.user, controlplane.Received) {
			if w.Verb == "delete" || w.Verb == "deletecollection" {
				t.Errorf("%s deleted %s, nobody asked for that", c.user, w.RequestURI)
			}
			at := w.StageTimestamp.Time
			last, ok := holderAt(changes, at)
			switch {
			case ok && last.user == c.user && last.holder != "":
			case ok && !manager[last.user] && at.Sub(last.answer) < byHand+here(t).lag:
			default:
				t.Errorf("%s sent %s %s at %v, when the lease had been last written by %q (holder %q) at %v", c.user, w.Verb, w.RequestURI,
					at.Format(time.StampMicro), last.user, last.holder, last.answer.Format(time.StampMicro))
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

// takings returns the changes by which the Lease came to another holder than before.
func takings(changes []leaseChange) []leaseChange {
	var taken []leaseChange
	holder := ""
	for _, c := range changes {
		if c.holder != "" && c.holder != holder {
			taken = append(taken, c)
		}
		holder = c.holder
	}
	return taken
}
