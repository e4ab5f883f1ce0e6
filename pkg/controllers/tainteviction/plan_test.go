package tainteviction

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
)

// begin is a whole second, as the API server stores times.
var begin = time.Unix(1_700_000_000, 0)

func at(seconds float64) time.Time {
	return begin.Add(time.Duration(seconds * float64(time.Second)))
}

func noExecuteTaint(key string) corev1.Taint {
	return corev1.Taint{Key: key, Value: "v", Effect: corev1.TaintEffectNoExecute}
}

// tolerates returns a toleration of the taint of a key: for ever, or for some seconds.
func tolerates(key string, seconds ...int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if len(seconds) > 0 {
		t.TolerationSeconds = &seconds[0]
	}
	return t
}

func TestStartTime(t *testing.T) {
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
		fakeapi.WantEqual(t, tt.name+": start time", startTime(tt.stamp, tt.seen), tt.want)
	}
}

// A step of the wall clock must not move a deadline: all comparisons need the monotonic reading.
func TestStartTimeKeepsMonotonicReading(t *testing.T) {
	seen := time.Now()
	stamp := metav1.NewTime(seen.Add(-time.Hour).Truncate(time.Second))
	if got := startTime(stamp, seen); !strings.Contains(got.String(), " m=") {
		t.Errorf("start time = %v, want a time with a monotonic reading", got)
	}
}

func TestTolerationOf(t *testing.T) {
	const forever = time.Duration(-1)
	red := corev1.Taint{Key: "red", Value: "2", Effect: corev1.TaintEffectNoExecute}
	any := corev1.Toleration{Operator: corev1.TolerationOpExists}
	for _, tt := range []struct {
		name        string
		tolerations []corev1.Toleration
		want        time.Duration
	}{
		{"none", nil, 0},
		{"for some time", []corev1.Toleration{tolerates("red", 30)}, 30 * time.Second},
		{"zero seconds is at once", []corev1.Toleration{tolerates("red", 0)}, 0},
		{"so is less", []corev1.Toleration{tolerates("red", -5)}, 0},
		{"more than a clock can count is for ever", []corev1.Toleration{tolerates("red", math.MaxInt64)}, forever},
		{"the most a clock can count", []corev1.Toleration{tolerates("red", 9223372036)}, 9223372036 * time.Second},
		{"another taint's toleration", []corev1.Toleration{tolerates("blue", 30)}, 0},
		{"the first that matches counts, not the strictest", []corev1.Toleration{tolerates("blue", 1), tolerates("red", 30), tolerates("red", 5)}, 30 * time.Second},
		{"nor the most patient", []corev1.Toleration{tolerates("red", 5), any}, 5 * time.Second},
		{"any key, any effect", []corev1.Toleration{any}, forever},
		{"another value", []corev1.Toleration{{Key: "red", Value: "light"}}, 0},
		{"another effect", []corev1.Toleration{{Key: "red", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, 0},
		{"a smaller number", []corev1.Toleration{{Key: "red", Value: "light", Operator: corev1.TolerationOpGt}, {Key: "red", Value: "1", Operator: corev1.TolerationOpGt}}, forever},
	} {
		got, limited := tolerationOf(red, tt.tolerations)
		if !limited {
			got = forever
		}
		fakeapi.Want(t, tt.name+": toleration", got, tt.want)
	}
}

// Every case of upstream's TestGetMinTolerationTime is here, marked with its number there.
func TestDecide(t *testing.T) {
	aged := func(key string, since float64) taint { return taint{noExecuteTaint(key), at(since), at(since)} }
	unreachable, notReady := corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady
	for _, tt := range []struct {
		name        string
		taints      []taint
		tolerations []corev1.Toleration
		bound       float64
		want        decision
	}{
		{"no taints", nil, nil, -100, decision{}},
		{"not tolerated: since the taint (1)", []taint{aged("a", 0)}, nil, -100, decision{at(0), at(0), nil}},
		{"tolerated for ever (2)", []taint{aged("a", 0)}, []corev1.Toleration{tolerates("a")}, -100, decision{}},
		{"the shortest of two (3)", []taint{aged("a", 0), aged("b", 0)}, []corev1.Toleration{tolerates("a", 1), tolerates("b", 2)}, -100, decision{at(1), at(1), nil}},
		{"one limited, one not (4)", []taint{aged("a", 0), aged("b", 0)}, []corev1.Toleration{tolerates("a", 1), tolerates("b")}, -100, decision{at(1), at(1), nil}},
		{"one not limited, one is (5)", []taint{aged("a", 0), aged("b", 0)}, []corev1.Toleration{tolerates("a"), tolerates("b", 1)}, -100, decision{at(1), at(1), nil}},
		{"one of two is not tolerated", []taint{aged("a", 0), aged("b", 3)}, []corev1.Toleration{tolerates("a", 100)}, -100, decision{at(3), at(3), nil}},
		{"each taint counts from its own time", []taint{aged("a", 0), aged("b", 50)}, []corev1.Toleration{tolerates("a", 90), tolerates("b", 10)}, -100, decision{at(60), at(60), nil}},
		{"a pod bound after the taint has its time from then", []taint{aged("a", 0)}, []corev1.Toleration{tolerates("a", 30)}, 3600, decision{at(3630), at(3630), nil}},
		{"health taints are trusted later, others at once", []taint{aged(unreachable, 0), aged("a", 0)}, []corev1.Toleration{tolerates(unreachable, 300), tolerates("a", 400)}, -100,
			decision{at(300), at(350), nil}},
		{"both health taints are", []taint{aged(unreachable, 10), aged(notReady, 0)}, []corev1.Toleration{tolerates(unreachable, 300), tolerates(notReady, 300)}, -100,
			decision{at(300), at(350), nil}},
		{"another taint is due before health taints are trusted", []taint{aged(unreachable, -50), aged("a", 0)}, nil, -100, decision{at(-50), at(0), nil}},
	} {
		got := decide(tt.taints, tt.tolerations, nil, at(tt.bound), at(350))
		got.countdowns = nil
		fakeapi.WantEqual(t, tt.name, got, tt.want, cmp.AllowUnexported(decision{}))
	}
}
