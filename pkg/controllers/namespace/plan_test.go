package namespace

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/internal/discovery"
)

var epoch = time.Unix(1e9, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func TestJudgePods(t *testing.T) {
	known := func(err error, types ...discovery.Type) discovery.Answer {
		return discovery.Answer{Sent: epoch, Err: err, Types: types}
	}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		pods typeResult
		now  time.Duration
		c    discovery.Answer
		want podGate
	}{
		{"empty list after the grace", typeResult{}, 5 * time.Second, known(nil, discovery.Pods), podsGone},
		{"empty list at its last instant", typeResult{}, 5*time.Second - 1, known(nil, discovery.Pods), podsEarly},
		{"pods", typeResult{remaining: 1}, 5 * time.Second, known(nil, discovery.Pods), podsLeft},
		{"pods before the grace is over", typeResult{remaining: 1}, 0, known(nil, discovery.Pods), podsLeft},
		{"a failing list is not an empty one", typeResult{err: broken}, 5 * time.Second, known(nil, discovery.Pods), podsFailed},
		{"a failing list with pods", typeResult{err: broken, remaining: 3}, 5 * time.Second, known(nil, discovery.Pods), podsFailed},
		{"not served, and not discovered either", typeResult{unserved: true}, 5 * time.Second, known(nil), podsGone},
		{"not served though discovered", typeResult{unserved: true}, 5 * time.Second, known(nil, discovery.Pods), podsFailed},
		{"not served, discovery incomplete", typeResult{unserved: true}, 5 * time.Second, known(broken), podsFailed},
		{"not served, no discovery", typeResult{unserved: true}, 5 * time.Second, discovery.Answer{}, podsFailed},
		{"empty list is proof even if discovery misses pods", typeResult{}, 5 * time.Second, known(broken), podsGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := judgePods(tt.pods, at(tt.now), at(5*time.Second), tt.c); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	broken := errors.New("broken")
	complete, partial := discovery.Answer{Sent: epoch}, discovery.Answer{Sent: epoch, Err: broken}
	for _, tt := range []struct {
		name string
		r    report
		all  bool
		want verdict
	}{
		{"nothing left", report{content: complete, outcomes: []typeResult{{}, {}}}, true, empty},
		{"nothing left, but not seen so in one pass", report{content: complete, outcomes: []typeResult{{}, {}}}, false, unproven},
		{"nothing left of what can be seen", report{content: partial, outcomes: []typeResult{{}, {}}}, true, undiscovered},
		{"a group version makes no sense", report{content: discovery.Answer{Sent: epoch, ParseErr: broken}}, true, undiscovered},
		{"never discovered", report{}, true, undiscovered},
		{"objects left", report{content: complete, outcomes: []typeResult{{}, {remaining: 1}}}, true, waiting},
		{"objects left and groups missing", report{content: partial, outcomes: []typeResult{{remaining: 1}}}, true, waiting},
		{"no time for some types", report{content: complete, outcomes: []typeResult{{}, {pending: true}}}, false, unfinished},
		{"no time for some types, and the discovery is incomplete", report{content: partial, outcomes: []typeResult{{}, {pending: true}}}, false, unfinished},
		{"an error comes before all", report{content: complete, outcomes: []typeResult{{remaining: 1}, {err: broken}}}, true, failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := judge(tt.r, tt.all); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestProven(t *testing.T) {
	pods := discovery.Pods
	other := discovery.Type{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("secrets"), List: true}
	for _, tt := range []struct {
		name       string
		emptyTypes map[discovery.Type]listing
		want       bool
	}{
		{"all at once", map[discovery.Type]listing{pods: {sent: at(0)}, other: {sent: at(0)}}, true},
		{"the failed one repeated in time", map[discovery.Type]listing{pods: {sent: at(-30 * time.Second)}, other: {sent: at(0)}}, true},
		{"one seen too long ago", map[discovery.Type]listing{pods: {sent: at(-30*time.Second - 1)}, other: {sent: at(0)}}, false},
		{"one seen long ago, and after all creates", map[discovery.Type]listing{pods: {sent: at(-time.Hour), lasting: true}, other: {sent: at(0)}}, true},
		{"one never seen", map[discovery.Type]listing{pods: {sent: at(0)}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := proven([]discovery.Type{pods, other}, tt.emptyTypes, epoch); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestWaitDoublesUntilSomethingMoves(t *testing.T) {
	var pauses []time.Duration
	w := wait{}
	for _, scene := range []string{"a", "a", "a", "a", "a", "a", "a", "b", "b", ""} {
		w = w.next(scene, epoch)
		pauses = append(pauses, w.pause)
	}
	ms := time.Millisecond
	want := []time.Duration{500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 15000 * ms, 15000 * ms, 500 * ms, 1000 * ms, 500 * ms}
	if diff := cmp.Diff(want, pauses); diff != "" {
		t.Error(diff)
	}
}

func TestWaitGrowsWithTheTimeThatNothingMoves(t *testing.T) {
	w := wait{scene: "a", since: epoch, pause: 15 * time.Second}
	for _, tt := range []struct{ after, want time.Duration }{
		{5 * time.Minute, 15 * time.Second},
		{10 * time.Minute, 30 * time.Second},
		{time.Hour, 30 * time.Second}, // at most twice the last one, in case the clock jumps
	} {
		if got := w.next("a", at(tt.after)).pause; got != tt.want {
			t.Errorf("pause %v after %v, want %v", got, tt.after, tt.want)
		}
	}
	w.pause = 2 * time.Minute
	if got := w.next("a", at(24*time.Hour)).pause; got != 2*time.Minute {
		t.Errorf("pause %v after a day, want 2m", got)
	}
}

func TestRecheck(t *testing.T) {
	left := report{outcomes: []typeResult{{remaining: 1}}}
	for _, tt := range []struct {
		name                   string
		r                      report
		content, disco, events time.Duration
		want                   time.Duration
	}{
		{"content waits as its back-off says", left, 8 * time.Second, 0, 20 * time.Second, 8 * time.Second},
		{"an Event is due before", left, 8 * time.Second, 0, 3 * time.Second, 3 * time.Second},
		{"an Event was due: that is over", left, 8 * time.Second, 0, -time.Second, 8 * time.Second},
		{"discovery may be repeated before", left, 8 * time.Second, 2 * time.Second, time.Minute, 2 * time.Second},
		{"only discovery is missing", report{}, 500 * time.Millisecond, 30 * time.Second, time.Minute, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := recheck(tt.r, tt.content, tt.disco, tt.events); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestFinalizers(t *testing.T) {
	for _, tt := range []struct {
		name           string
		spec           []corev1.FinalizerName
		meta           []string
		others         []corev1.FinalizerName
		ours, goesAway bool
	}{
		{"ours alone", []corev1.FinalizerName{"kubernetes"}, nil, []corev1.FinalizerName{}, true, true},
		{"others are sorted, each once", []corev1.FinalizerName{"b/x", "kubernetes", "a/x", "b/x"}, nil, []corev1.FinalizerName{"a/x", "b/x"}, true, false},
		{"held by its metadata", []corev1.FinalizerName{"kubernetes"}, []string{"orphan"}, []corev1.FinalizerName{}, true, false},
		{"ours is done", []corev1.FinalizerName{"a/x"}, nil, []corev1.FinalizerName{"a/x"}, false, false},
		{"finalized", nil, nil, []corev1.FinalizerName{}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Finalizers: tt.meta}, Spec: corev1.NamespaceSpec{Finalizers: tt.spec}}
			if diff := cmp.Diff(tt.others, otherFinalizers(ns)); diff != "" {
				t.Error(diff)
			}
			if ourFinalizer(ns) != tt.ours || goesWithUs(ns) != tt.goesAway {
				t.Errorf("ours %v, goes with us %v, want %v, %v", ourFinalizer(ns), goesWithUs(ns), tt.ours, tt.goesAway)
			}
		})
	}
}

func TestNotice(t *testing.T) {
	type step struct {
		at       time.Duration
		identity string
	}
	for _, tt := range []struct {
		name  string
		steps []step
		said  []time.Duration
	}{
		{"a blocker that goes is not worth an Event", []step{{0, "a"}, {29 * time.Second, "a"}}, nil},
		{"one that stands for 30 s is", []step{{0, "a"}, {30 * time.Second, "a"}}, []time.Duration{30 * time.Second}},
		{"another one starts over", []step{{0, "a"}, {20 * time.Second, "b"}, {30 * time.Second, "b"}, {50 * time.Second, "b"}}, []time.Duration{50 * time.Second}},
		{"it is not repeated", []step{{0, "a"}, {30 * time.Second, "a"}, {60 * time.Second, "a"}}, []time.Duration{30 * time.Second}},
		{"a change after that is told at the second look",
			[]step{{0, "a"}, {30 * time.Second, "a"}, {31 * time.Second, "b"}, {32 * time.Second, "b"}, {33 * time.Second, "b"}},
			[]time.Duration{30 * time.Second, 32 * time.Second}},
		{"a blocker seen only once between is not", []step{{0, "a"}, {30 * time.Second, "a"}, {31 * time.Second, "b"}, {32 * time.Second, "a"}}, []time.Duration{30 * time.Second}},
		{"it is told again before events expire", []step{{0, "a"}, {30 * time.Second, "a"}, {630 * time.Second, "a"}}, []time.Duration{30 * time.Second, 630 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var n notice
			var said []time.Duration
			for _, s := range tt.steps {
				var say bool
				if n, say = n.next(s.identity, at(s.at)); say {
					said = append(said, s.at)
				}
			}
			if diff := cmp.Diff(tt.said, said); diff != "" {
				t.Error(diff)
			}
		})
	}
	n, _ := notice{}.next("a", epoch)
	if due := n.due(at(10 * time.Second)); due != 20*time.Second {
		t.Errorf("due in %v, want 20s", due)
	}
}

func TestObservationsOutliveTerms(t *testing.T) {
	var d deletions
	d.note("uid", epoch)
	if seen := d.note("uid", at(time.Minute)); !seen.Equal(epoch) {
		t.Errorf("first seen at %v, want %v", seen, epoch)
	}
	d.forget("uid")
	if seen := d.note("uid", at(time.Hour)); !seen.Equal(at(time.Hour)) {
		t.Errorf("seen at %v after it was forgotten, want %v", seen, at(time.Hour))
	}
}

// A thousand namespaces that wait for days remember three hundred types each.
func TestMemoryOfWaitingNamespacesIsSmall(t *testing.T) {
	var outcomes []typeResult
	for i := range 300 {
		outcomes = append(outcomes, left("apps", fmt.Sprint("type-", i), 0, nil))
		outcomes[i].listing.sent = epoch
	}
	c := &Controller{memories: map[string]*memory{}}
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	for i := range 1000 {
		m := c.memory(terminating(func(ns *corev1.Namespace) { ns.Name = fmt.Sprint(i) }))
		m.note(outcomes)
		m.verifyAgain(epoch.Add(time.Hour))
	}
	grown := heap() - before
	if grown > 20<<20 {
		t.Errorf("%d MiB, want at most 20", grown>>20)
	}
	t.Logf("%d MiB", grown>>20)
	m := c.memories["0"]
	types := []discovery.Type{outcomes[0].resource}
	if todo := m.notYetEmpty(types); len(todo) > 0 {
		t.Errorf("%v is listed while the namespace waits", todo)
	}
	m.expire(epoch.Add(time.Hour))
	if todo := m.notYetEmpty(types); len(todo) == 0 {
		t.Error("no type is listed at the end")
	}
}
