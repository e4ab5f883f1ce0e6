package replicaset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
)

func TestBarrier(t *testing.T) {
	for _, tt := range []struct {
		name      string
		pod, set  string // written
		at        versions
		waitedFor time.Duration
		want      barrier
	}{
		{"nothing written", "", "", versions{"1", "1"}, 0, open},
		{"nothing written, nothing known", "", "", versions{}, 0, open},
		{"cache is behind with pods", "100", "", versions{"99", "200"}, 0, wait},
		{"cache is behind with ReplicaSets", "", "100", versions{"200", "99"}, 0, wait},
		{"cache has reached it", "100", "100", versions{"100", "100"}, 0, open},
		{"cache is past it", "99", "", versions{"100", "1"}, 0, open},
		{"numbers, not text", "100", "", versions{"99", "1"}, 0, wait},
		{"behind for long", "100", "", versions{"99", "1"}, barrierPatience, overdue},
		{"behind for not so long", "100", "", versions{"99", "1"}, barrierPatience - 1, wait},
		{"cache has no version", "100", "", versions{"", "1"}, 0, overdue},
		{"cache has an odd version", "100", "", versions{"abc", "1"}, 0, overdue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger("set")
			l.podVersion, l.setVersion = tt.pod, tt.set
			if tt.waitedFor > 0 {
				l.unseenSince = now.Add(-tt.waitedFor)
			}
			if got := l.check(tt.at, now); got != tt.want {
				t.Errorf("barrier %d, want %d", got, tt.want)
			}
		})
	}
}

// TestBarrierOverTime: the wait is measured from the first time the cache was found behind, is over until somebody has looked, begins anew
// after that, and ends when the cache has caught up.
func TestBarrierOverTime(t *testing.T) {
	l := newLedger("set")
	l.wrotePod("50")
	l.wrotePod("100")
	l.wrotePod("70")
	for _, step := range []struct {
		after time.Duration
		pods  string
		want  barrier
	}{
		{0, "99", wait}, {29 * time.Second, "99", wait}, {30 * time.Second, "99", overdue}, {31 * time.Second, "99", overdue},
		{32 * time.Second, "100", open}, {33 * time.Second, "1", open},
	} {
		if got := l.check(versions{step.pods, "1"}, now.Add(step.after)); got != step.want {
			t.Errorf("after %v, at %s: barrier %d, want %d", step.after, step.pods, got, step.want)
		}
	}
	l.wrotePod("200")
	at := versions{"199", "50"}
	l.check(at, now)
	if got := l.check(at, now.Add(barrierPatience)); got != overdue {
		t.Errorf("barrier %d, want overdue", got)
	}
	l.lookedLive(newSet(1), nil, "250")
	for after, want := range map[time.Duration]barrier{0: wait, barrierPatience - 1: wait} {
		if got := l.check(at, now.Add(barrierPatience+after)); got != want {
			t.Errorf("%v after a look: barrier %d, want %d", after, got, want)
		}
	}
}

func TestLookedLive(t *testing.T) {
	set := newSet(3, func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "40" })
	t.Run("the cache must reach what was seen", func(t *testing.T) {
		l := newLedger("set")
		l.lookedLive(set, []*caches.Pod{newPod("a", version("30")), newPod("b", version("35")), newPod("c", version("39"), ownedBy("another"))}, "44")
		if l.podVersion != "39" || l.setVersion != "40" || !l.verified {
			t.Errorf("pods %s, set %s, verified %t; want 39, 40, true", l.podVersion, l.setVersion, l.verified)
		}
	})
	t.Run("versions lower than those we wrote mean that history was rewound", func(t *testing.T) {
		l := newLedger("set")
		l.podVersion, l.setVersion = "1000", "2000"
		l.lookedLive(set, []*caches.Pod{newPod("a", version("30"))}, "44")
		if l.podVersion != "30" || l.setVersion != "40" {
			t.Errorf("pods %s, set %s; want 30, 40", l.podVersion, l.setVersion)
		}
	})
	t.Run("versions we wrote stay otherwise", func(t *testing.T) {
		l := newLedger("set")
		l.podVersion = "42"
		l.lookedLive(set, nil, "44")
		if l.podVersion != "42" {
			t.Errorf("pods %s, want 42", l.podVersion)
		}
	})
}

// TestGhosts: after a live read the cache may still show pods that are gone, even ones it has not shown before.
func TestGhosts(t *testing.T) {
	cached := []*caches.Pod{
		newPod("listed", version("30")),
		newPod("ghost", version("20")),
		newPod("newer", version("60")),
		newPod("relabelled", version("20"), labelled(map[string]string{"app": "db"})),
	}
	for _, tt := range []struct {
		name  string
		store string // version of the cache
		want  []string
	}{
		{"the cache is behind the list", "49", []string{"listed", "newer", "relabelled"}},
		{"the cache has reached the list", "50", []string{"listed", "ghost", "newer", "relabelled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger("set")
			l.lookedLive(newSet(1), []*caches.Pod{newPod("listed", version("30"))}, "50")
			selected := func(pod *caches.Pod) bool { return pod.Labels["app"] == "web" }
			got := l.withoutGhosts(slices.Clone(cached), versions{pods: tt.store}, selected)
			if !slices.Equal(uids(got), tt.want) {
				t.Errorf("pods %v, want %v", uids(got), tt.want)
			}
			// The list is no longer needed once the cache has reached it.
			if forgotten := l.seen == nil; forgotten != (tt.store == "50") {
				t.Errorf("list forgotten: %t", forgotten)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	l := newLedger("set")
	l.intents = []intent{{name: "made", unknown: true}, {name: "taken", unknown: true}, {name: "pending", unknown: true}, {name: "free"}}
	l.gone = set[types.UID]("gone-shown", "gone-terminating", "gone-gone")
	soon, late := doom{"5", now.Add(time.Second)}, doom{"5", now.Add(time.Minute)}
	l.doomed = map[types.UID]doom{"doomed-shown": late, "doomed-soon": soon, "doomed-terminating": soon, "doomed-gone": late, "doomed-changed": late, "doomed-older": {"9", late.until}}
	l.refused = map[types.UID]refusal{"refused": {version: "5"}, "refused-changed": {version: "4"}, "refused-gone": {version: "5"}}
	pods := []*caches.Pod{
		newPod("made"), newPod("gone-shown"), newPod("gone-terminating", deleting), newPod("doomed-shown"), newPod("doomed-terminating", deleting),
		newPod("doomed-soon"), newPod("doomed-changed", version("6")), newPod("doomed-older"), newPod("refused", orphaned), newPod("refused-changed", orphaned),
	}
	found := l.settle(pods, byNameIn(append(pods, newPod("taken", ownedBy("another")))), time.Time{})
	if found != (lostAnswers{created: 1, deleted: 2, undone: 1}) {
		t.Errorf("found out about %+v, want 1 created, 2 deleted and 1 not", found)
	}
	if got := l.decided(); !got.Equal(soon.until) {
		t.Errorf("the next is known at %v, want %v", got, soon.until)
	}
	if doomed := keys(l.doomed); !slices.Equal(doomed, []types.UID{"doomed-older", "doomed-shown", "doomed-soon"}) {
		t.Errorf("doomed are %v: a pod that has changed cannot be deleted by an old request", doomed)
	}
	for _, live := range []time.Time{soon.until.Add(-1), soon.until} {
		want := lostAnswers{}
		if live.Equal(soon.until) {
			want.undone = 1
		}
		if found := l.settle(pods, byNameIn(nil), live); found != want {
			t.Errorf("a read at %v finds out about %+v, want %+v", live, found, want)
		}
	}
	if want := []intent{{name: "pending", unknown: true}, {name: "free"}}; !slices.Equal(l.intents, want) {
		t.Errorf("intents %v, want %v", l.intents, want)
	}
	for name, left := range map[string][]types.UID{"gone": keys(l.gone), "doomed": keys(l.doomed), "refused": keys(l.refused)} {
		want := map[string][]types.UID{"gone": {"gone-shown"}, "doomed": {"doomed-older", "doomed-shown"}, "refused": {"refused"}}[name]
		if !slices.Equal(left, want) {
			t.Errorf("%s left: %v, want %v", name, left, want)
		}
	}
}

func set[T comparable](members ...T) map[T]struct{} {
	m := map[T]struct{}{}
	for _, member := range members {
		m[member] = struct{}{}
	}
	return m
}

func keys[V any](m map[types.UID]V) []types.UID {
	var out []types.UID
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestNames: names whose create was not answered are used up before new ones are drawn.
func TestNames(t *testing.T) {
	drawn := 0
	draw := func() string { drawn++; return fmt.Sprint("web-", drawn) }
	free := func(string) bool { return false }
	names := func(l *ledger, n int, taken func(string) bool) []string {
		var out []string
		for _, i := range l.names(n, draw, taken) {
			out = append(out, i.name)
		}
		return out
	}
	l := newLedger("set")
	if got := names(l, 3, func(name string) bool { return name == "web-2" }); !slices.Equal(got, []string{"web-1", "web-3", "web-4"}) {
		t.Fatalf("names %v, want web-1, web-3, web-4: web-2 is taken", got)
	}
	if len(l.unanswered()) != 3 {
		t.Errorf("%d unanswered while the requests are out, want 3", len(l.unanswered()))
	}
	lost := intent{name: "web-3", unknown: true, until: now.Add(landsWithin)}
	l.forget("web-1")             // made
	l.keep(lost)                  // not answered
	l.keep(intent{name: "web-4"}) // refused
	if got := l.unanswered(); len(got) != 1 || !got[0].Equal(lost.until) {
		t.Errorf("unanswered until %v, want one until %v", got, lost.until)
	}
	if again := l.names(1, draw, free); again[0] != lost {
		t.Errorf("next is %+v, want web-3, not answered", again[0])
	}
	if got := names(l, 3, free); !slices.Equal(got, []string{"web-3", "web-4", "web-5"}) {
		t.Errorf("names %v, want web-3, web-4, web-5", got)
	}
}

func TestLedgersOfRecreatedSet(t *testing.T) {
	all := newLedgers()
	key := cache.NewObjectName("default", "web")
	old := all.of(key, "one")
	if all.of(key, "one") != old {
		t.Error("another ledger for the same ReplicaSet")
	}
	if all.of(key, "two") == old {
		t.Error("a ReplicaSet of the same name inherited the ledger")
	}
	next := all.of(key, "two")
	soon, late := now.Add(time.Second), now.Add(time.Minute)
	all.note(key, []time.Time{late, late}, false, now)
	all.note(key, []time.Time{soon, late, late}, false, now.Add(time.Second))
	if n, d := all.unanswered(now), all.oldestUnmet(now.Add(time.Minute)); n != 3 || d != time.Minute {
		t.Errorf("%d unanswered, unmet for %v; want 3 and 1m", n, d)
	}
	if at, end := all.unanswered(soon), all.unanswered(late); at != 2 || end != 0 {
		t.Errorf("%d and later %d unanswered, want 2, and none that can no longer be carried out", at, end)
	}
	all.note(key, nil, true, now)
	if n, d := all.unanswered(now), all.oldestUnmet(now.Add(time.Minute)); n != 0 || d != 0 {
		t.Errorf("%d unanswered, unmet for %v; want none", n, d)
	}
	all.reset()
	if all.of(key, "two") == next {
		t.Error("a new term inherited a ledger")
	}
}

func TestObserveSpec(t *testing.T) {
	for _, tt := range []struct {
		name              string
		before            int64 // generation that pods were last created for in this term; 0: none
		generation, acted int64
		changed           bool
	}{
		{"first seen in this term", 0, 3, 3, false},
		{"first seen, and not acted on by the manager before us", 0, 3, 2, true},
		{"new", 0, 1, 0, true},
		{"as before", 3, 3, 3, false},
		{"as before, the status is late", 3, 3, 2, false},
		{"changed", 3, 4, 3, true},
	} {
		l := newLedger("set")
		l.generation = tt.before
		l.observeSpec(tt.generation, tt.acted, now)
		if changed := l.specSince.Equal(now); changed != tt.changed || l.generation != tt.generation {
			t.Errorf("%s: changed %t, want %t; generation %d, want %d", tt.name, changed, tt.changed, l.generation, tt.generation)
		}
	}
}
