package freshness

import (
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/fakeapi"
)

// Every state with every observation.
func TestNextCacheState(t *testing.T) {
	const long, short = time.Hour, 9 * time.Second
	quiet := observation{behind: true, inState: 10 * time.Second, unchangedFor: 90 * time.Second, comparedAgo: long, open: true, silentFor: short}
	with := func(change func(*observation)) observation { o := quiet; change(&o); return o }
	lease := func(change func(*observation)) observation {
		o := observation{behind: true, open: true, maxSilence: 6 * time.Second, missingFor: 6 * time.Second, silentFor: 6 * time.Second, inState: 6 * time.Second}
		change(&o)
		return o
	}
	all := []cacheState{current, behind, reopened, stale}
	same := []cacheState{behind, reopened, stale}
	for _, tt := range []struct {
		name    string
		in      []cacheState
		o       observation
		want    []cacheState // Empty if the state stays.
		compare bool
	}{
		{"all versions reached", all, observation{unchangedFor: long, comparedAgo: long, inState: long}, []cacheState{current, current, current, current}, false},
		{"first behind", all[:1], quiet, []cacheState{behind}, false},
		{"unchanged for too long", []cacheState{behind}, quiet, []cacheState{reopened}, false},
		{"the next bookmark may come", []cacheState{behind}, with(func(o *observation) { o.inState, o.unchangedFor = 80*time.Second, 89*time.Second }), nil, false},
		{"late and changing", []cacheState{behind}, with(func(o *observation) { o.inState, o.unchangedFor = 179*time.Second, time.Second }), nil, false},
		{"minutes late and changing", []cacheState{behind}, with(func(o *observation) { o.inState, o.unchangedFor = 180*time.Second, time.Second }), []cacheState{reopened}, false},
		{"just reopened", []cacheState{reopened}, with(func(o *observation) { o.inState = short }), nil, false},
		{"the reopened watch delivers nothing", []cacheState{reopened}, quiet, nil, true},
		{"changing after the reopening", []cacheState{reopened}, with(func(o *observation) { o.inState, o.unchangedFor = 89*time.Second, time.Second }), nil, false},
		{"changing for long after the reopening", []cacheState{reopened}, with(func(o *observation) { o.inState, o.unchangedFor = 90*time.Second, time.Second }), nil, true},
		{"the difference may heal", []cacheState{reopened}, with(func(o *observation) { o.differs, o.comparedAgo = true, short }), nil, false},
		{"the difference does not heal", []cacheState{reopened}, with(func(o *observation) { o.differs, o.comparedAgo = true, 10*time.Second }), []cacheState{stale}, false},
		{"the difference does not heal in a cache that changes", []cacheState{reopened},
			with(func(o *observation) { o.differs, o.comparedAgo, o.unchangedFor = true, 89*time.Second, time.Second }), nil, false},
		{"the difference does not heal for long", []cacheState{reopened},
			with(func(o *observation) { o.differs, o.comparedAgo, o.unchangedFor = true, 90*time.Second, time.Second }), []cacheState{stale}, false},
		{"a version missed after the reopening", []cacheState{reopened}, with(func(o *observation) { o.inState, o.missingFor = time.Minute, 10*time.Second }), []cacheState{behind}, false},
		{"stale as before", []cacheState{stale}, with(func(o *observation) { o.differs, o.comparedAgo = true, 30*time.Second }), nil, true},
		{"stale and compared a short time ago", []cacheState{stale}, with(func(o *observation) { o.comparedAgo = 29 * time.Second }), nil, false},
		{"the reflector lists", same, with(func(o *observation) {
			o.differs, o.listing, o.inState, o.unchangedFor, o.missingFor, o.maxSilence, o.silentFor = true, true, long, long, long, time.Second, long
		}), nil, false},
		{"renewals are not delivered", []cacheState{behind}, lease(func(*observation) {}), []cacheState{reopened}, false},
		{"renewals are not delivered after the reopening", []cacheState{reopened}, lease(func(*observation) {}), []cacheState{stale}, false},
		{"a late renewal", []cacheState{behind, reopened}, lease(func(o *observation) { o.missingFor = 5 * time.Second }), nil, false},
		{"late renewals on a stream with data", []cacheState{behind, reopened}, lease(func(o *observation) { o.silentFor = 5 * time.Second }), nil, false},
		{"the reflector is between two attempts", []cacheState{behind, reopened}, lease(func(o *observation) { o.open = false }), nil, false},
		{"just reopened for renewals", []cacheState{reopened}, lease(func(o *observation) { o.inState = 5 * time.Second }), nil, false},
	} {
		for i, s := range tt.in {
			want := s
			if tt.want != nil {
				want = tt.want[i]
			}
			if got, compare := s.nextState(tt.o); got != want || compare != tt.compare {
				t.Errorf("%s: %s: next(%+v) = %s, compare: %t; want %s, %t", tt.name, s, tt.o, got, compare, want, tt.compare)
			}
		}
	}
}

// object returns one object. Several are joined by objects.
func object(name, uid, version string) ObjectVersions {
	return ObjectVersions{{Namespace: "ns", Name: name}: {types.UID(uid), version}}
}

func objects(of ...ObjectVersions) ObjectVersions {
	all := ObjectVersions{}
	for _, o := range of {
		maps.Copy(all, o)
	}
	return all
}

func TestDifferenceTo(t *testing.T) {
	listed := objects(object("a", "1", "10"), object("b", "2", "20"))
	for _, tt := range []struct {
		name   string
		cached ObjectVersions
		want   ObjectVersions
	}{
		{"equal", objects(object("b", "2", "20"), object("a", "1", "10")), nil},
		{"newer than the list", objects(object("a", "1", "31"), object("b", "3", "40")), nil},
		{"created after the list", objects(object("a", "1", "10"), object("b", "2", "20"), object("c", "3", "31")), nil},
		{"missing", object("a", "1", "10"), object("b", "2", "20")},
		{"older", objects(object("a", "1", "9"), object("b", "2", "20")), object("a", "1", "10")},
		{"an older one of that name", objects(object("a", "0", "9"), object("b", "2", "20")), object("a", "1", "10")},
		{"deleted", objects(object("a", "1", "10"), object("b", "2", "20"), object("c", "3", "30")), object("c", "", "30")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := differenceTo(listed, "30", tt.cached)
			fakeapi.WantEqual(t, "difference", ObjectVersions(got), objects(tt.want))
			for _, heals := range []struct {
				name   string
				cached ObjectVersions
				left   int
			}{
				{"same cache", tt.cached, len(tt.want)},
				{"listed objects, and another object with the name of a deleted object", objects(listed, object("c", "4", "50")), 0},
				{"listed objects", listed, 0},
			} {
				left := maps.Clone(got)
				if left.removeHealed(heals.cached); len(left) != heals.left {
					t.Errorf("%s: difference is still %v, want %d objects", heals.name, left, heals.left)
				}
			}
		})
	}
}
