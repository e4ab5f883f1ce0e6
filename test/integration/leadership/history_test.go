package leadership

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
)

func leaseChanges(t *testing.T) []controlplane.LeaseChange {
	t.Helper()
	changes, err := controlplane.LeaseChanges(here(t).AuditLog(t, controlplane.ByResource("leases")), leaseKey)
	controlplane.Must(t, err)
	return changes
}

var leaseKey = types.NamespacedName{Namespace: leaseSpace, Name: leaseName}

// podCreates returns the pods that a user has created.
func podCreates(t *testing.T, user string) controlplane.AuditEvents {
	t.Helper()
	return here(t).AuditLog(t, controlplane.ByUser(user), controlplane.Completed, controlplane.Succeeded,
		controlplane.ByResource("pods"), controlplane.ByVerb("create"))
}

func judge(t *testing.T, contenders ...*contender) {
	t.Helper()
	judgeLease(t, contenders...)
	for _, w := range here(t).AuditLog(t, controlplane.Received, controlplane.ByVerb("delete", "deletecollection"), controlplane.ByUserAgent("/replicaset-controller")) {
		t.Errorf("%s deleted %s, the ReplicaSet had no pod too many", w.User.Username, w.RequestURI)
	}
}

// judgeLease fails the test if a contender sent a write without the Lease, see [controlplane.JudgeLease].
func judgeLease(t *testing.T, contenders ...*contender) {
	t.Helper()
	var users []string
	for _, c := range contenders {
		users = append(users, c.user)
	}
	breaches, err := controlplane.JudgeLease(here(t).AuditLog(t, controlplane.Writes), leaseKey, users...)
	controlplane.Must(t, err)
	for _, b := range breaches {
		t.Error(b)
	}
}

// terms returns the first write of each term.
func terms(t *testing.T) []controlplane.LeaseChange {
	t.Helper()
	changes := slices.CompactFunc(leaseChanges(t), func(a, b controlplane.LeaseChange) bool { return a.Holder == b.Holder })
	return slices.DeleteFunc(changes, func(c controlplane.LeaseChange) bool { return c.Holder == "" })
}
