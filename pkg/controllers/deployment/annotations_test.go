package deployment

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestRevision(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
	}{
		{"", 0}, {"1", 1}, {"3546343826724305832", 3546343826724305832}, {"9223372036854775807", math.MaxInt64},
		{"9223372036854775808", 0}, {"-4", 0}, {"two", 0}, {"1.5", 0}, {" 1", 0},
	} {
		if got := revisionOf(map[string]string{revisionAnnotation: tt.text}); got != tt.want {
			t.Errorf("revision %q is %d, want %d", tt.text, got, tt.want)
		}
	}
}

func TestSizeAnnotation(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int
		ok   bool
	}{
		{"0", 0, true}, {"20", 20, true}, {"2147483647", math.MaxInt32, true},
		{"", 0, false}, {"2147483648", 0, false}, {"18446744073709551616", 0, false}, {"-1", 0, false}, {"-2147483648", 0, false}, {"text", 0, false}, {"2.5", 0, false},
	} {
		rs := newOld("a", 1, 1).rs
		rs.Annotations = map[string]string{desiredReplicasAnnotation: tt.text}
		if got, ok := sizeAnnotation(rs, desiredReplicasAnnotation); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q is %d (%t), want %d (%t)", tt.text, got, ok, tt.want, tt.ok)
		}
	}
	if _, ok := sizeAnnotation(newOld("a", 1, 1).rs, desiredReplicasAnnotation); ok {
		t.Error("an annotation that is not there can be read")
	}
}

func TestSizeAnnotationsStayWithinInt32(t *testing.T) {
	want := map[string]string{desiredReplicasAnnotation: "2147483647", maxReplicasAnnotation: "2147483647"}
	if diff := cmp.Diff(want, sizeAnnotations(bounds{replicas: math.MaxInt32, surge: math.MaxInt32})); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestAnnotationsOfTheNewReplicaSet(t *testing.T) {
	old := func(revs ...string) (sets []replicaSet) {
		for i, r := range revs {
			sets = append(sets, newOld("old-"+strconv.Itoa(i), 0, i, revision(r)))
		}
		return sets
	}
	for _, tt := range []struct {
		name       string
		deployment map[string]string
		has        map[string]string
		old        []replicaSet
		want       map[string]string // to write
	}{
		{"the first revision", nil, nil, nil, map[string]string{revisionAnnotation: "1"}},
		{"one more than all old ones", nil, nil, old("2", "7", "3"), map[string]string{revisionAnnotation: "8"}},
		{"old ones that cannot be read do not count", nil, nil, old("x", "2", "-9"), map[string]string{revisionAnnotation: "3"}},
		{"it is the highest already", nil, map[string]string{revisionAnnotation: "9"}, old("2"), nil},
		{"undo: the number before goes into its history", nil, map[string]string{revisionAnnotation: "1"}, old("2"),
			map[string]string{revisionAnnotation: "3", revisionHistoryAnnotation: "1"}},
		{"undo again", nil, map[string]string{revisionAnnotation: "3", revisionHistoryAnnotation: "1"}, old("4"),
			map[string]string{revisionAnnotation: "5", revisionHistoryAnnotation: "1,3"}},
		{"a number that cannot be read is none, and is not remembered", nil, map[string]string{revisionAnnotation: "first"}, old("2"),
			map[string]string{revisionAnnotation: "3"}},
		{"a large one", nil, nil, old("3546343826724305832"), map[string]string{revisionAnnotation: "3546343826724305833"}},
		{"the largest one stays", nil, map[string]string{revisionAnnotation: "1"}, old("9223372036854775807"),
			map[string]string{revisionAnnotation: "9223372036854775807", revisionHistoryAnnotation: "1"}},
		{"and is written once", nil, map[string]string{revisionAnnotation: "9223372036854775807"}, old("9223372036854775807"), nil},
		{"what users say is copied, empty values too", map[string]string{"kubernetes.io/change-cause": "v2", "empty": ""}, map[string]string{revisionAnnotation: "1"}, nil,
			map[string]string{"kubernetes.io/change-cause": "v2", "empty": ""}},
		{"what it has is not written again, and nothing is taken away", map[string]string{"a": "1"}, map[string]string{revisionAnnotation: "1", "a": "1", "b": "2"}, nil, nil},
		{"what is about the Deployment alone is not copied", map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "deprecated.deployment.rollback.to": "1",
			revisionAnnotation: "5", revisionHistoryAnnotation: "1", desiredReplicasAnnotation: "3", maxReplicasAnnotation: "3"},
			map[string]string{revisionAnnotation: "1"}, nil, nil},
	} {
		d := newDeployment(3)
		d.Annotations = tt.deployment
		got := missingFrom(tt.has, nextAnnotations(d, tt.has, tt.old))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: to write (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestHistoryOfRevisionsIsBounded(t *testing.T) {
	full := strings.Repeat("1234567,", 249) + "12345678" // 2,000
	for _, tt := range []struct{ name, history, want string }{
		{"the first", "", "9"},
		{"it fits", full[:1998], full[:1998] + ",9"},
		{"the oldest goes", full, full[8:] + ",9"},
		{"one that is too long goes", strings.Repeat("1", 2000), "9"},
	} {
		if got := appendRevision(tt.history, 9); got != tt.want || len(got) > 2000 {
			t.Errorf("%s: %d characters …%q, want %d …%q", tt.name, len(got), got[max(0, len(got)-20):], len(tt.want), tt.want[max(0, len(tt.want)-20):])
		}
	}
}
