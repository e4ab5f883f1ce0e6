package freshness

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// Every state against everything that may be seen in it.
func TestNextFreshness(t *testing.T) {
	cfg := Config{}.withDefaults()
	const long = time.Hour
	quiet := sight{behind: true, lasts: 10 * time.Second, still: 90 * time.Second, compared: long}
	with := func(s sight, change func(*sight)) sight { change(&s); return s }
	lacks := with(quiet, func(s *sight) { s.lacks = true })
	all := []freshness{current, behind, different, reopened, stale}
	for _, tt := range []struct {
		name    string
		in      []freshness
		s       sight
		want    []freshness // nil: it stays
		verdict verdict
	}{
		{"it has it all", all, sight{still: long, compared: long}, []freshness{current, current, current, current, current}, fine},
		{"a list is ahead of it", []freshness{current}, quiet, []freshness{behind}, patience},
		{"it has not moved for too long", []freshness{behind}, quiet, nil, compare},
		{"the list is too young to tell", []freshness{behind}, with(quiet, func(s *sight) { s.lasts = 9 * time.Second }), nil, patience},
		{"the next bookmark may still come", []freshness{behind}, with(quiet, func(s *sight) { s.lasts, s.still = 80*time.Second, 89*time.Second }), nil, patience},
		{"it was compared in vain", []freshness{behind, stale}, with(lacks, func(s *sight) { s.compared = 29 * time.Second }), nil, patience},
		{"it moves, late", []freshness{behind}, with(quiet, func(s *sight) { s.lasts, s.still = 179*time.Second, time.Second }), nil, patience},
		{"it moves, minutes late", []freshness{behind}, with(quiet, func(s *sight) { s.lasts, s.still = 180*time.Second, time.Second }), nil, compare},
		{"what it lacked has come", []freshness{different, reopened}, quiet, []freshness{behind, behind}, patience},
		{"what it lacked has come, but not all", []freshness{stale}, quiet, nil, compare},
		{"it has just been found to lack something", []freshness{different, reopened}, with(lacks, func(s *sight) { s.lasts = 9 * time.Second }), nil, patience},
		{"it still lacks it", []freshness{different}, lacks, []freshness{reopened}, reopen},
		{"it lacks it after the reopening", []freshness{reopened}, lacks, []freshness{stale}, declare},
		{"it lacks it and moves", []freshness{different, reopened}, with(lacks, func(s *sight) { s.lasts, s.still = 89*time.Second, time.Second }), nil, patience},
		{"it lacks it, moves, and does not get there", []freshness{different}, with(lacks, func(s *sight) { s.lasts, s.still = 90*time.Second, time.Second }), []freshness{reopened}, reopen},
		{"nor after the reopening", []freshness{reopened}, with(lacks, func(s *sight) { s.lasts, s.still = 90*time.Second, time.Second }), []freshness{stale}, declare},
		{"it lacks it as ever", []freshness{stale}, lacks, nil, compare},
		{"everything is listed anew", []freshness{behind, different, reopened, stale},
			sight{behind: true, lacks: true, lasts: long, still: long, compared: long, listing: true}, nil, patience},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, p := range tt.in {
				want := p
				if tt.want != nil {
					want = tt.want[i]
				}
				if got, verdict := p.next(tt.s, cfg); got != want || verdict != tt.verdict {
					t.Errorf("%s: next(%+v) = %s, %s; want %s, %s", p, tt.s, got, verdict, want, tt.verdict)
				}
			}
		})
	}
}

func TestFreshnessAfterAComparison(t *testing.T) {
	for _, tt := range []struct {
		from                   freshness
		equal, differs, unsure freshness
		unanswered             freshness // a list is not answered
	}{
		{current, current, different, current, current},
		{behind, current, different, behind, current},
		{different, current, different, different, current},
		{reopened, current, different, reopened, current},
		{stale, current, stale, stale, stale},
	} {
		t.Run(tt.from.String(), func(t *testing.T) {
			got := [...]freshness{tt.from.found(equal), tt.from.found(differs), tt.from.found(unknown), tt.from.unanswered()}
			if want := [...]freshness{tt.equal, tt.differs, tt.unsure, tt.unanswered}; got != want {
				t.Errorf("equal, different, unknown, unanswered lead to %v, want %v", got, want)
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
		{"reopened in vain", canarySight{ahead: 4, open: true, silent: 8 * time.Second, reopened: true}, declare},
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
		{"deleted", []ObjectVersion{object("a", "1", "10"), object("b", "2", "20"), object("c", "3", "30")}, []ObjectVersion{object("c", "", "30")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := compareSets(listed, "30", tt.cached)
			if diff := cmp.Diff(tt.want, slices.Collect(maps.Values(got))); diff != "" {
				t.Errorf("compareSets: -want +got\n%s", diff)
			}
			if left := got.unhealed(tt.cached); len(left) != len(tt.want) {
				t.Errorf("unhealed by the same cache: %v, want all of %v", left, tt.want)
			}
			again := append(slices.Clone(listed), object("c", "4", "50"))
			if left := got.unhealed(again); len(left) != 0 {
				t.Errorf("unhealed by what was listed and another of the name of what was deleted: %v", left)
			}
			if left := got.unhealed(listed); len(left) != 0 {
				t.Errorf("unhealed by what was listed: %v", left)
			}
		})
	}
}
