package tainteviction

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/caches"
)

// begin is a whole second, as the API server stores times.
var begin = time.Unix(1_700_000_000, 0)

func at(seconds float64) time.Time {
	return begin.Add(time.Duration(seconds * float64(time.Second)))
}

func noExecuteTaint(key string, added ...float64) corev1.Taint {
	t := corev1.Taint{Key: key, Value: "v", Effect: corev1.TaintEffectNoExecute}
	if len(added) > 0 {
		stamp := metav1.NewTime(at(added[0]))
		t.TimeAdded = &stamp
	}
	return t
}

// tolerates returns a toleration of the taint of a key: for ever, or for some seconds.
func tolerates(key string, seconds ...int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if len(seconds) > 0 {
		t.TolerationSeconds = &seconds[0]
	}
	return t
}

func TestNoExecute(t *testing.T) { // upstream's TestFilterNoExecuteTaints
	got := noExecuteTaints([]corev1.Taint{{Key: "one", Effect: corev1.TaintEffectNoExecute}, {Key: "two", Effect: corev1.TaintEffectNoSchedule}})
	if len(got) != 1 || got[0].Key != "one" {
		t.Errorf("noExecute = %v, want only one", got)
	}
}

func TestSince(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stamp metav1.Time
		seen  time.Time
		want  time.Time
	}{
		{"unknown to the API server: when first seen", metav1.Time{}, at(7), at(7)},
		{"seen long after: the end of the stamped second", metav1.NewTime(at(0)), at(7), at(1)},
		{"seen within the stamped second: then", metav1.NewTime(at(0)), at(0.4), at(0.4)},
		{"in the future, by a clock ahead of ours: when first seen", metav1.NewTime(at(3600)), at(7), at(7)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := startTime(tt.stamp, tt.seen); !got.Equal(tt.want) {
				t.Errorf("since = %v, want %v", got.Sub(begin), tt.want.Sub(begin))
			}
		})
	}
}

// A step of the wall clock must not move a deadline: all comparisons need the monotonic reading.
func TestSinceKeepsMonotonicReading(t *testing.T) {
	seen := time.Now()
	stamp := metav1.NewTime(seen.Add(-time.Hour).Truncate(time.Second))
	if got := startTime(stamp, seen); !strings.Contains(got.String(), " m=") {
		t.Errorf("since = %v, want a time with a monotonic reading", got)
	}
}

func TestPatience(t *testing.T) {
	const forever = time.Duration(-1)
	red := corev1.Taint{Key: "red", Value: "dark", Effect: corev1.TaintEffectNoExecute}
	sec := func(t corev1.Toleration, s int64) corev1.Toleration { t.TolerationSeconds = &s; return t }
	any := corev1.Toleration{Operator: corev1.TolerationOpExists}
	for _, tt := range []struct {
		name        string
		tolerations []corev1.Toleration
		want        time.Duration
	}{
		{"none", nil, 0},
		{"for ever", []corev1.Toleration{tolerates("red")}, forever},
		{"for some time", []corev1.Toleration{tolerates("red", 30)}, 30 * time.Second},
		{"zero seconds is at once", []corev1.Toleration{tolerates("red", 0)}, 0},
		{"so is less", []corev1.Toleration{tolerates("red", -5)}, 0},
		{"more than a clock can count is for ever", []corev1.Toleration{tolerates("red", math.MaxInt64)}, forever},
		{"the most a clock can count", []corev1.Toleration{tolerates("red", 9223372036)}, 9223372036 * time.Second},
		{"another taint's toleration", []corev1.Toleration{tolerates("blue", 30)}, 0},
		{"the first that matches counts, not the strictest", []corev1.Toleration{tolerates("blue", 1), tolerates("red", 30), tolerates("red", 5)}, 30 * time.Second},
		{"nor the most patient", []corev1.Toleration{tolerates("red", 5), any}, 5 * time.Second},
		{"any key, any effect", []corev1.Toleration{any}, forever},
		{"equal value, operator left out", []corev1.Toleration{sec(corev1.Toleration{Key: "red", Value: "dark"}, 3)}, 3 * time.Second},
		{"another value", []corev1.Toleration{{Key: "red", Value: "light"}}, 0},
		{"another effect", []corev1.Toleration{{Key: "red", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, 0},
		{"numeric operators are off", []corev1.Toleration{{Key: "red", Value: "1", Operator: corev1.TolerationOpGt}}, 0},
		{"unknown operator", []corev1.Toleration{{Key: "red", Operator: "Likes"}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, limited := tolerationOf(red, tt.tolerations)
			if !limited {
				got = forever
			}
			if got != tt.want {
				t.Errorf("patience = %v, want %v", got, tt.want)
			}
		})
	}
}

// Every case of upstream's TestGetMinTolerationTime is here, marked with its number there.
func TestLimitsOf(t *testing.T) {
	aged := func(key string, since float64) taint { return taint{noExecuteTaint(key), at(since)} }
	unreachable, notReady := corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady
	for _, tt := range []struct {
		name        string
		taints      []taint
		tolerations []corev1.Toleration
		bound       float64
		want        limits
	}{
		{"no taints", nil, nil, -100, limits{}},
		{"not tolerated: since the taint (1)", []taint{aged("a", 0)}, nil, -100, limits{others: at(0)}},
		{"tolerated for ever (2)", []taint{aged("a", 0)}, []corev1.Toleration{tolerates("a")}, -100, limits{}},
		{"the shortest of two (3)", []taint{aged("a", 0), aged("b", 0)}, []corev1.Toleration{tolerates("a", 1), tolerates("b", 2)}, -100, limits{others: at(1)}},
		{"one limited, one not (4)", []taint{aged("a", 0), aged("b", 0)}, []corev1.Toleration{tolerates("a", 1), tolerates("b")}, -100, limits{others: at(1)}},
		{"one not limited, one is (5)", []taint{aged("a", 0), aged("b", 0)}, []corev1.Toleration{tolerates("a"), tolerates("b", 1)}, -100, limits{others: at(1)}},
		{"one of two is not tolerated", []taint{aged("a", 0), aged("b", 3)}, []corev1.Toleration{tolerates("a", 100)}, -100, limits{others: at(3)}},
		{"each taint counts from its own time", []taint{aged("a", 0), aged("b", 50)}, []corev1.Toleration{tolerates("a", 90), tolerates("b", 10)}, -100, limits{others: at(60)}},
		{"a pod bound after the taint has its time from then", []taint{aged("a", 0)}, []corev1.Toleration{tolerates("a", 30)}, 3600, limits{others: at(3630)}},
		{"health apart from others", []taint{aged(unreachable, 0), aged("a", 0)}, []corev1.Toleration{tolerates(unreachable, 300), tolerates("a", 400)}, -100,
			limits{health: at(300), others: at(400)}},
		{"both taints of health are", []taint{aged(unreachable, 10), aged(notReady, 0)}, []corev1.Toleration{tolerates(unreachable, 300), tolerates(notReady, 300)}, -100,
			limits{health: at(300)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := limitsOf(tt.taints, tt.tolerations, at(tt.bound)); got != tt.want {
				t.Errorf("limitsOf = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	var never time.Time
	for _, tt := range []struct {
		name    string
		limits  limits
		trusted float64
		now     float64
		want    decision
	}{
		{"no limit", limits{}, 0, 0, decision{}},
		{"an instant too early", limits{others: at(10)}, 0, 10 - 1e-6, decision{wait, at(10), at(10)}},
		{"in time", limits{others: at(10)}, 0, 10, decision{leave, at(10), never}},
		{"hours late", limits{others: at(10)}, 0, 7200, decision{leave, at(10), never}},
		{"by health, trusted", limits{health: at(10)}, 0, 10, decision{leave, at(10), never}},
		{"by health, not yet trusted", limits{health: at(10)}, 50, 20, decision{wait, at(10), at(50)}},
		{"by health, from now on trusted", limits{health: at(10)}, 50, 50, decision{leave, at(10), never}},
		{"by health, to be trusted only after the deadline", limits{health: at(10)}, 50, 5, decision{wait, at(10), at(50)}},
		{"others need no trust", limits{others: at(10)}, 50, 20, decision{leave, at(10), never}},
		{"others come before trust", limits{health: at(10), others: at(30)}, 50, 20, decision{wait, at(10), at(30)}},
		{"others act on a pod that health may not touch yet", limits{health: at(10), others: at(30)}, 50, 30, decision{leave, at(10), never}},
		{"the earlier of both", limits{health: at(40), others: at(30)}, 0, 20, decision{wait, at(30), at(30)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(tt.limits, at(tt.trusted), at(tt.now)); got != tt.want {
				t.Errorf("decide = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestStateOf(t *testing.T) {
	unreachable, notReady := corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady
	for _, tt := range []struct {
		ready corev1.ConditionStatus
		want  []string // keys of the taints that count
	}{
		{corev1.ConditionTrue, []string{"user"}},
		{corev1.ConditionFalse, []string{"user", unreachable, notReady}},
		{corev1.ConditionUnknown, []string{"user", unreachable, notReady}},
		{"", []string{"user", unreachable, notReady}},
	} {
		t.Run("ready "+string(tt.ready), func(t *testing.T) {
			node := &corev1.Node{}
			if tt.ready != "" {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tt.ready}}
			}
			node.Spec.Taints = []corev1.Taint{
				noExecuteTaint("user"), noExecuteTaint(unreachable, 0), noExecuteTaint(notReady), {Key: "x", Effect: corev1.TaintEffectNoSchedule},
			}
			s := stateOf(node, func(corev1.Taint) time.Time { return at(100) })
			var keys []string
			for _, taint := range s.taints {
				keys = append(keys, taint.Key)
				if want := map[bool]time.Time{true: at(1), false: at(100)}[taint.TimeAdded != nil]; !taint.since.Equal(want) {
					t.Errorf("taint %s since %v, want %v", taint.Key, taint.since, want)
				}
			}
			if fmt.Sprint(keys) != fmt.Sprint(tt.want) {
				t.Errorf("taints %v count, want %v", keys, tt.want)
			}
		})
	}
}

func TestBoundAt(t *testing.T) {
	pod := &caches.Pod{}
	pod.CreationTimestamp = metav1.NewTime(at(0))
	if got := boundAt(pod); !got.Time.Equal(at(0)) {
		t.Errorf("a pod created on its node is bound at %v, want its creation", got)
	}
	pod.Scheduled = caches.Condition{Status: corev1.ConditionTrue, Since: metav1.NewTime(at(60))}
	if got := boundAt(pod); !got.Time.Equal(at(60)) {
		t.Errorf("a scheduled pod is bound at %v, want when it was scheduled", got)
	}
}
