package leadership

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestJudge(t *testing.T) {
	cfg := LivenessConfig{}.withDefaults()
	for _, tt := range []struct {
		name string
		s    sight
		want verdict
	}{
		{"a store that has it all", sight{silent: time.Hour}, fine},
		{"behind, but the bookmark is not due", sight{behind: 60 * time.Second, silent: 60 * time.Second}, patience},
		{"behind and silent for too long", sight{behind: 60 * time.Second, silent: 90 * time.Second}, reopen},
		{"behind for long, but bytes come: lag", sight{behind: time.Hour, silent: time.Second}, patience},
		{"just reopened", sight{behind: 95 * time.Second, silent: 5 * time.Second, reopened: 5 * time.Second}, patience},
		{"reopened in vain", sight{behind: 100 * time.Second, silent: 10 * time.Second, reopened: 10 * time.Second}, compare},
		{"reopened, and it moves", sight{behind: 100 * time.Second, silent: time.Second, reopened: 10 * time.Second, moved: true}, fine},
		{"stale, and it moves: not yet there", sight{behind: time.Hour, reopened: time.Minute, moved: true, stale: true}, compare},
		{"stale, and it has it all", sight{reopened: time.Minute, moved: true, stale: true}, fine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := judge(tt.s, cfg); got != tt.want {
				t.Errorf("judge(%+v) = %s, want %s", tt.s, got, tt.want)
			}
		})
	}
}

func TestJudgeCanary(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    canarySight
		want verdict
	}{
		{"every renewal is shown", canarySight{open: true}, fine},
		{"three renewals late", canarySight{ahead: 3, open: true, silent: 6 * time.Second}, patience},
		{"four renewals late", canarySight{ahead: 4, open: true, silent: 8 * time.Second}, reopen},
		{"late, but bytes come: lag", canarySight{ahead: 100, open: true, silent: 5 * time.Second}, patience},
		{"the reflector is between two tries", canarySight{ahead: 100, silent: time.Hour}, patience},
		{"just reopened", canarySight{open: true, reopened: true}, patience},
		{"reopened in vain", canarySight{ahead: 4, open: true, silent: 8 * time.Second, reopened: true}, stale},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := judgeCanary(tt.s, 2*time.Second); got != tt.want {
				t.Errorf("judgeCanary(%+v) = %s, want %s", tt.s, got, tt.want)
			}
		})
	}
}

func object(name, uid, version string) ObjectVersion {
	return ObjectVersion{"ns", name, types.UID(uid), version}
}

func TestCompareSets(t *testing.T) {
	listed := []ObjectVersion{object("a", "1", "10"), object("b", "2", "20")}
	for _, tt := range []struct {
		name   string
		cached []ObjectVersion
		want   []ObjectVersion
	}{
		{"equal", []ObjectVersion{object("b", "2", "20"), object("a", "1", "10")}, nil},
		{"newer than the list", []ObjectVersion{object("a", "1", "31"), object("b", "3", "40")}, nil},
		{"created after the list", []ObjectVersion{object("a", "1", "10"), object("b", "2", "20"), object("c", "3", "31")}, nil},
		{"missing", []ObjectVersion{object("a", "1", "10")}, []ObjectVersion{object("b", "2", "20")}},
		{"older", []ObjectVersion{object("a", "1", "9"), object("b", "2", "20")}, []ObjectVersion{object("a", "1", "10")}},
		{"an older one of that name", []ObjectVersion{object("a", "0", "9"), object("b", "2", "20")}, []ObjectVersion{object("a", "1", "10")}},
		{"deleted", []ObjectVersion{object("a", "1", "10"), object("b", "2", "20"), object("c", "3", "30")}, []ObjectVersion{object("c", "", "")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := compareSets(listed, "30", tt.cached)
			if diff := cmp.Diff(tt.want, slices.Collect(maps.Values(got))); diff != "" {
				t.Errorf("compareSets: -want +got\n%s", diff)
			}
			if left := got.unhealed(tt.cached); len(left) != len(tt.want) {
				t.Errorf("unhealed by the same cache: %v, want all of %v", left, tt.want)
			}
			if left := got.unhealed(listed); len(left) != 0 {
				t.Errorf("unhealed by what was listed: %v", left)
			}
		})
	}
}
