package controlplane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func TestJudgeLease(t *testing.T) {
	lease := types.NamespacedName{Namespace: "kube-system", Name: "manager"}
	day := time.Unix(1e9, 0)
	ids := 0
	request := func(user, verb, resource, name string, received, answered int, code int32, body string) AuditEvents {
		ids++
		e := auditv1.Event{
			AuditID: types.UID(fmt.Sprint(ids)), Verb: verb, Stage: auditv1.StageRequestReceived,
			ObjectRef:                &auditv1.ObjectReference{Resource: resource, Namespace: "kube-system", Name: name},
			RequestReceivedTimestamp: metav1.NewMicroTime(day.Add(time.Duration(received) * time.Second)),
		}
		e.User.Username, e.StageTimestamp = user, e.RequestReceivedTimestamp
		done := *e.DeepCopy()
		done.Stage, done.StageTimestamp = auditv1.StageResponseComplete, metav1.NewMicroTime(day.Add(time.Duration(answered)*time.Second))
		done.ResponseStatus = &metav1.Status{Code: code}
		if body != "" {
			done.RequestObject = &runtime.Unknown{Raw: []byte(body)}
		}
		return AuditEvents{e, done}
	}
	hold := func(user, holder string, received, answered int) AuditEvents {
		return request(user, "update", "leases", "manager", received, answered, 200, fmt.Sprintf(`{"metadata":{"name":"manager"},"spec":{"holderIdentity":%q}}`, holder))
	}
	write := func(user string, received int) AuditEvents {
		return request(user, "create", "pods", "", received, received+1, 201, "")
	}
	first := hold("a", "a_1", 0, 1)
	for _, tt := range []struct {
		name   string
		events []AuditEvents
		want   int
	}{
		{"by the holder", []AuditEvents{first, write("a", 2)}, 0},
		{"by another manager", []AuditEvents{first, write("b", 2)}, 1},
		{"by a user that is no manager", []AuditEvents{first, write("user", 2)}, 0},
		{"before the Lease was taken", []AuditEvents{write("a", 0), hold("a", "a_1", 1, 2)}, 1},
		{"while another manager takes the Lease", []AuditEvents{first, hold("b", "b_1", 3, 9), write("a", 5)}, 0},
		{"after another manager has taken the Lease", []AuditEvents{first, hold("b", "b_1", 3, 4), write("a", 5)}, 1},
		{"received before, answered after", []AuditEvents{first, request("a", "create", "pods", "", 2, 9, 201, ""), hold("b", "b_1", 3, 4)}, 0},
		{"after its own release", []AuditEvents{first, hold("a", "", 3, 4), write("a", 5)}, 1},
		{"after a failed taking", []AuditEvents{first, request("b", "update", "leases", "manager", 3, 4, 409, `{"spec":{"holderIdentity":"b_1"}}`), write("a", 5)}, 0},
		{"after the Lease was deleted", []AuditEvents{first, request("user", "delete", "leases", "manager", 3, 4, 200, ""), write("a", 5)}, 0},
		{"after the Lease was created anew", []AuditEvents{first, request("b", "create", "leases", "", 3, 4, 201, `{"metadata":{"name":"manager"},"spec":{"holderIdentity":"b_1"}}`), write("a", 5)}, 1},
		{"after another Lease was taken", []AuditEvents{first, request("b", "update", "leases", "node", 3, 4, 200, `{"spec":{"holderIdentity":"b_1"}}`), write("a", 5)}, 0},
		{"rejected", []AuditEvents{first, hold("b", "b_1", 3, 4), request("a", "patch", "nodes", "n", 5, 6, 403, "")}, 1},
		{"unanswered", []AuditEvents{first, hold("b", "b_1", 3, 4), write("a", 5)[:1]}, 1},
		{"answered only", []AuditEvents{first, hold("b", "b_1", 3, 4), write("a", 5)[1:]}, 1},
		{"of the Lease", []AuditEvents{first, hold("b", "b_1", 3, 4), request("a", "update", "leases", "manager", 5, 6, 409, "{}")}, 0},
		{"of an event or a review", []AuditEvents{first, request("b", "create", "events", "", 5, 6, 201, ""), request("b", "create", "subjectaccessreviews", "", 5, 6, 201, "")}, 0},
	} {
		events := slices.Concat(tt.events...)
		slices.SortStableFunc(events, func(a, b auditv1.Event) int { return a.StageTimestamp.Compare(b.StageTimestamp.Time) })
		got, err := JudgeLease(events, lease, "a", "b")
		Must(t, err)
		if len(got) != tt.want {
			t.Errorf("%s: %d breaches, want %d: %v", tt.name, len(got), tt.want, got)
		}
	}
	if _, err := JudgeLease(write("a", 5), lease, "a"); err == nil {
		t.Error("a history without a change of the Lease has been judged")
	}
}
