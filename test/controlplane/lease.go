package controlplane

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

type LeaseChange struct {
	User     string
	Holder   string // "" if the Lease was released or deleted
	Deleted  bool
	Received time.Time
	Answered time.Time
}

// LeaseChanges returns the successful writes to a Lease in the order of the responses. The audit policy must log the
// request bodies of Leases.
func LeaseChanges(events AuditEvents, lease types.NamespacedName) ([]LeaseChange, error) {
	var changes []LeaseChange
	for _, e := range events.Select(Completed, Succeeded, ByVerb("create", "update", "patch", "delete"), ByResource("leases"), ByNamespace(lease.Namespace)) {
		if e.ObjectRef.Name != lease.Name && e.Verb != "create" {
			continue
		}
		c := LeaseChange{User: e.User.Username, Deleted: e.Verb == "delete", Received: e.RequestReceivedTimestamp.Time, Answered: e.StageTimestamp.Time}
		if !c.Deleted {
			var sent coordinationv1.Lease
			if e.RequestObject == nil || json.Unmarshal(e.RequestObject.Raw, &sent) != nil {
				return nil, fmt.Errorf("audit event %s has no Lease as its request body", e.AuditID)
			}
			if e.Verb == "create" && sent.Name != lease.Name {
				continue
			}
			if sent.Spec.HolderIdentity != nil {
				c.Holder = *sent.Spec.HolderIdentity
			}
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// LeaseBreach is a write by a manager that did not hold the Lease.
type LeaseBreach struct {
	Write auditv1.Event
	Last  LeaseChange // complete before the write was received
}

func (b LeaseBreach) String() string {
	return fmt.Sprintf("%s sent %s %s, received %v after %q had written the Lease with holder %q",
		b.Write.User.Username, b.Write.Verb, b.Write.RequestURI, b.Late(), b.Last.User, b.Last.Holder)
}

// Late returns the time between the response to the last change of the Lease and the receipt of the write.
func (b LeaseBreach) Late() time.Duration {
	return b.Write.RequestReceivedTimestamp.Sub(b.Last.Answered)
}

// JudgeLease returns the writes, successful or not, of managers that did not hold the Lease: writes that the API
// server received after the response to another user's acquisition of the Lease, or to the manager's own release. The
// deletion of a Lease changes no holder. Leases, Events and reviews need no Lease.
func JudgeLease(events AuditEvents, lease types.NamespacedName, managers ...string) ([]LeaseBreach, error) {
	changes, err := LeaseChanges(events, lease)
	if err != nil {
		return nil, err
	}
	changes = slices.DeleteFunc(changes, func(c LeaseChange) bool { return c.Deleted })
	if len(changes) == 0 {
		return nil, fmt.Errorf("the Lease %s was never taken", lease)
	}
	var breaches []LeaseBreach
	judged := map[types.UID]bool{}
	for _, w := range events.Select(Writes, needsLease) {
		if !slices.Contains(managers, w.User.Username) || w.AuditID != "" && judged[w.AuditID] {
			continue
		}
		judged[w.AuditID] = true
		if last := LastLeaseChange(changes, w.RequestReceivedTimestamp.Time); last.User != w.User.Username || last.Holder == "" {
			breaches = append(breaches, LeaseBreach{Write: w, Last: last})
		}
	}
	return breaches, nil
}

// LastLeaseChange returns the last change that was complete before a time, and the zero value if no change was.
func LastLeaseChange(changes []LeaseChange, at time.Time) LeaseChange {
	n, _ := slices.BinarySearchFunc(changes, at, func(c LeaseChange, at time.Time) int { return c.Answered.Compare(at) })
	if n == 0 {
		return LeaseChange{}
	}
	return changes[n-1]
}

func needsLease(e *auditv1.Event) bool {
	return e.ObjectRef != nil && e.ObjectRef.Resource != "leases" && e.ObjectRef.Resource != "events" && !strings.HasSuffix(e.ObjectRef.Resource, "reviews")
}
