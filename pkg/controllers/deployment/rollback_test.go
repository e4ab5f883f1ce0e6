package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestRollback(t *testing.T) {
	old := newOld("old", 0, 2, revision("2"))
	older := newOld("older", 0, 3, revision("1"))
	next := newNext("new", 3, revision("5"))
	twin := newOld("twin", 0, 1, revision("3"))
	twin.current = true
	for _, tt := range []struct {
		name    string
		to      string
		sets    []set
		want    string // ReplicaSet
		problem rollbackProblem
		ignored bool
	}{
		{"to a revision", "1", []set{next, old, older}, "older", rollbackNone, false},
		{"to the last one", "0", []set{next, old, older}, "old", rollbackNone, false},
		{"to the last one, before the present template has a ReplicaSet", "0", []set{old, older}, "old", rollbackNone, false},
		{"to the last one, before the new one that was there has its revision", "0", []set{newNext("new", 3, revision("1")), old, newOld("last", 0, 1, revision("3"))}, "last", rollbackNone, false},
		{"there is no last one", "0", []set{next}, "", rollbackNoLast, false},
		{"there are none", "0", nil, "", rollbackNoLast, false},
		{"the last one has no revision", "0", []set{next, newOld("bad", 0, 1, revision("x"))}, "", rollbackNoLast, false},
		{"nobody has the revision", "7", []set{next, old}, "", rollbackNotFound, false},
		{"negative", "-1", []set{next, old}, "", rollbackNotFound, false},
		{"to the present one", "5", []set{next, old}, "", rollbackUnchanged, false},
		{"to one of the same template", "3", []set{newOld("other", 1, 1), next, twin}, "", rollbackUnchanged, false},
		{"none asked for", "", []set{next, old}, "", rollbackNone, true},
		{"no number", "last", []set{next, old}, "", rollbackNone, true},
		{"more than a number can be", "9223372036854775808", []set{next, old}, "", rollbackNone, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDeployment(3, annotated(appsv1.DeprecatedRollbackTo, tt.to))
			got := newPass(d, tt.sets...).rollback()
			if (got == nil) != tt.ignored {
				t.Fatalf("rollback %+v, want one: %t", got, !tt.ignored)
			}
			if got == nil {
				return
			}
			name := ""
			if got.to != nil {
				name = got.to.Name
			}
			if name != tt.want || got.problem != tt.problem {
				t.Errorf("to %q, problem %d, want %q, %d", name, got.problem, tt.want, tt.problem)
			}
			if p := rollout(d, tt.sets, facts{}, now); p.rollback == nil || p.create != nil || len(p.changes) > 0 || len(p.delete) > 0 {
				t.Errorf("something else is written in this pass: %+v", p)
			}
			if p := rollout(newDeployment(3, paused, annotated(appsv1.DeprecatedRollbackTo, tt.to)), tt.sets, facts{}, now); p.rollback != nil {
				t.Error("a paused Deployment is rolled back")
			}
		})
	}
}
