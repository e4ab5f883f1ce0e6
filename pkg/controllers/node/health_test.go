package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	day     = time.Date(2015, 1, 1, 12, 0, 0, 0, time.UTC)
	created = time.Date(2012, 1, 1, 0, 0, 0, 0, time.UTC)
)

func TestLateKubelets(t *testing.T) {
	const grace = 50 * time.Second
	at := func(s int) time.Time { return day.Add(time.Duration(s) * time.Second) }
	for _, tt := range []struct {
		name     string
		renewals []int // by the kubelet's clock, in seconds; it was seen at the last
		silent   int
		want     bool
	}{
		{"renews every 10 s, half its grace over", []int{0, 10, 20}, 26, true},
		{"renews every 10 s, not yet", []int{0, 10, 20}, 25, false},
		{"renews every 30 s: late after 45 s", []int{0, 30, 60}, 45, false},
		{"renews every 30 s: later than that", []int{0, 30, 60}, 46, true},
		{"an outage between its last renewals is not its way", []int{0, 10, 3610}, 26, true},
		{"nor one before", []int{0, 3600, 3610}, 26, true},
		{"its clock was set back", []int{0, 10, 20, -3600}, 26, true},
		{"one renewal: nothing is known", []int{0}, 26, true},
		{"no Lease", nil, 26, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := heartbeat{seen: at(0)}
			for _, s := range tt.renewals {
				h = h.afterLiveLease(at(s), at(0))
			}
			if got := h.isLate(h.seen.Add(grace), grace, at(tt.silent)); got != tt.want {
				t.Errorf("late %v after %d s, want %v (intervals %v)", got, tt.silent, tt.want, h.intervals)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	slack := deadlineSlack
	for _, tt := range []struct {
		name     string
		silence  time.Duration // since the last sign of life
		judged   time.Duration // before now; 0 never
		hasReady bool
		period   time.Duration
		want     judgement
	}{
		{"fresh, posted", 0, 0, true, 5 * time.Second, judgement{recheck: 50*time.Second + slack}},
		{"fresh, never posted: startup grace", 0, 0, false, 5 * time.Second, judgement{recheck: 60*time.Second + slack}},
		{"silent for exactly the grace is alive", 50 * time.Second, 0, true, 5 * time.Second, judgement{recheck: slack}},
		{"silent for more than the grace", 50*time.Second + 1, 0, true, 5 * time.Second, judgement{silent: true}},
		{"51 s: silent", 51 * time.Second, 0, true, 5 * time.Second, judgement{silent: true}},
		{"51 s, never posted: within the startup grace", 51 * time.Second, 0, false, 5 * time.Second, judgement{recheck: 9*time.Second + slack}},
		{"61 s, never posted: silent", 61 * time.Second, 0, false, 5 * time.Second, judgement{silent: true}},
		{"judged within the period: not yet again", 51 * time.Second, 2 * time.Second, true, 5 * time.Second, judgement{recheck: 3*time.Second + slack}},
		{"judged a period ago: again", 51 * time.Second, 5*time.Second + 1, true, 5 * time.Second, judgement{silent: true}},
		{"a period longer than the grace wins", 2 * time.Minute, time.Minute, true, time.Hour, judgement{recheck: 59*time.Minute + slack}},
		{"a period that is over does not shorten the grace", 10 * time.Second, 8 * time.Second, true, 5 * time.Second, judgement{recheck: 40*time.Second + slack}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := defaults()
			cfg.MonitorPeriod = tt.period
			var judged time.Time
			if tt.judged > 0 {
				judged = day.Add(-tt.judged)
			}
			got := judge(heartbeat{seen: day.Add(-tt.silence)}, judged, tt.hasReady, cfg, day)
			if got != tt.want {
				t.Errorf("judge = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDeadlinesMeet(t *testing.T) {
	for _, tt := range []struct {
		name  string
		due   time.Duration // after a full second
		grace time.Duration
		want  time.Duration // how much later it is looked at, without the slack
	}{
		{"on a step", 400 * time.Millisecond, 50 * time.Second, 0},
		{"between two", 250 * time.Millisecond, 50 * time.Second, 150 * time.Millisecond},
		{"just after one", 1, 50 * time.Second, 200*time.Millisecond - 1},
		{"a short grace has short steps", 4 * time.Millisecond, time.Second, 6 * time.Millisecond},
		{"the shortest has hardly any", 3, time.Millisecond, 10*time.Microsecond - 3},
		{"none has none", 3, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := defaults()
			cfg.MonitorPeriod, cfg.MonitorGracePeriod = 0, tt.grace
			seen := day.Add(tt.due - tt.grace)
			got := judge(heartbeat{seen: seen}, time.Time{}, true, cfg, seen)
			if want := tt.grace + deadlineSlack + tt.want; got.recheck != want {
				t.Errorf("recheck = %v, want %v", got.recheck, want)
			}
		})
	}
}

// posted is a node whose Ready condition has a heartbeat time.
func posted(status corev1.ConditionStatus, at time.Time) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", CreationTimestamp: metav1.NewTime(created)}}
	if status != "" {
		setReady(node, status, at)
	}
	return node
}

func TestFirstSight(t *testing.T) {
	for _, tt := range []struct {
		name    string
		node    *corev1.Node
		renewed time.Time
		want    time.Time
	}{
		{"posted long ago: trusted from now", posted(corev1.ConditionTrue, created), time.Time{}, day},
		{"posted without a heartbeat time: trusted from now", posted(corev1.ConditionTrue, time.Time{}), time.Time{}, day},
		{"never posted, no lease: silent since its creation", posted("", created), time.Time{}, created},
		{"never posted, a lease: alive now, however old the lease", posted("", created), created, day},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := firstHeartbeat(tt.node, tt.renewed, day).seen; !got.Equal(tt.want) {
				t.Errorf("seen = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSignsOfLife(t *testing.T) {
	now := day.Add(time.Minute)
	h := firstHeartbeat(posted(corev1.ConditionTrue, day), day, day)
	for _, tt := range []struct {
		name string
		got  heartbeat
		want bool
	}{
		{"same heartbeat time", h.afterStatus(posted(corev1.ConditionTrue, day), now), false},
		{"same heartbeat time, other status", h.afterStatus(posted(corev1.ConditionUnknown, day), now), false},
		{"later heartbeat time", h.afterStatus(posted(corev1.ConditionTrue, day.Add(time.Second)), now), true},
		{"earlier heartbeat time: the node's clock was set", h.afterStatus(posted(corev1.ConditionTrue, created), now), true},
		{"Ready removed", h.afterStatus(posted("", day), now), false},
		{"Ready removed and put back as it was", h.afterStatus(posted("", day), now).afterStatus(posted(corev1.ConditionTrue, day), now), false},
		{"same renew time", h.afterLease(day, now), false},
		{"later renew time, far in the past", h.afterLease(day.Add(time.Microsecond), now), true},
		{"later renew time, far in the future", h.afterLease(day.Add(1000*time.Hour), now), true},
		{"earlier renew time", h.afterLease(created, now), false},
		{"renew time gone", h.afterLease(time.Time{}, now), false},
		{"status after lease keeps the lease in mind", h.afterLease(day.Add(1), day).afterStatus(posted(corev1.ConditionTrue, day.Add(1)), day).afterLease(day.Add(1), now), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.got.seen.Equal(now); got != tt.want {
				t.Errorf("counts as a sign of life: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestHealthBelongsToAUID(t *testing.T) {
	o := newHealthMap()
	first := posted(corev1.ConditionTrue, day)
	first.UID = "first"
	o.node(first, day, day)
	o.change("node", "first", func(r *nodeHealth) { r.judged = day })
	second := posted("", day)
	second.UID, second.CreationTimestamp = "second", metav1.NewTime(day.Add(time.Hour))
	now := day.Add(time.Hour + time.Second)
	got := o.node(second, time.Time{}, now) // no delete event came: the watch was away
	want := nodeHealth{uid: "second", heartbeat: heartbeat{seen: second.CreationTimestamp.Time}}
	if got != want {
		t.Errorf("health = %+v, want %+v", got, want)
	}
	o.forget("node", "first") // comes late
	if _, ok := o.of("node", ""); !ok {
		t.Error("the end of the first node took what is known of the second")
	}
}

func TestUnknownConditions(t *testing.T) {
	never := func(kind corev1.NodeConditionType) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: "Unknown", Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
			LastHeartbeatTime: metav1.NewTime(created), LastTransitionTime: metav1.NewTime(day),
		}
	}
	given := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, transition time.Time) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: metav1.NewTime(created.Add(time.Hour)), LastTransitionTime: metav1.NewTime(transition),
		}
	}
	stopped := func(kind corev1.NodeConditionType) corev1.NodeCondition {
		return given(kind, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", day)
	}
	for _, tt := range []struct {
		name    string
		have    []corev1.NodeCondition
		want    []corev1.NodeCondition
		changed bool
	}{
		{
			"never posted anything", nil,
			[]corev1.NodeCondition{never("Ready"), never("MemoryPressure"), never("DiskPressure"), never("PIDPressure")}, true,
		},
		{
			"stopped posting",
			[]corev1.NodeCondition{given("Ready", "True", "KubeletReady", "fine", created)},
			[]corev1.NodeCondition{stopped("Ready"), never("MemoryPressure"), never("DiskPressure"), never("PIDPressure")}, true,
		},
		{
			"stopped posting all, in its own order",
			[]corev1.NodeCondition{
				given("PIDPressure", "False", "a", "b", created), given("MemoryPressure", "True", "a", "b", created),
				given("DiskPressure", "False", "a", "b", created), given("Ready", "False", "a", "b", created),
			},
			[]corev1.NodeCondition{stopped("PIDPressure"), stopped("MemoryPressure"), stopped("DiskPressure"), stopped("Ready")}, true,
		},
		{
			"what the control plane owns, and what we do not know, stays",
			[]corev1.NodeCondition{
				given("NetworkUnavailable", "True", "a", "b", created), given("Ready", "True", "a", "b", created), given("Lifecycle", "True", "a", "b", created),
			},
			[]corev1.NodeCondition{
				given("NetworkUnavailable", "True", "a", "b", created), stopped("Ready"), given("Lifecycle", "True", "a", "b", created),
				never("MemoryPressure"), never("DiskPressure"), never("PIDPressure"),
			}, true,
		},
		{
			"a condition that is Unknown already keeps its words and times",
			[]corev1.NodeCondition{given("Ready", "True", "a", "b", created), given("DiskPressure", "Unknown", "a", "b", created)},
			[]corev1.NodeCondition{stopped("Ready"), given("DiskPressure", "Unknown", "a", "b", created), never("MemoryPressure"), never("PIDPressure")}, true,
		},
		{
			"pressure alone is no reason to write",
			[]corev1.NodeCondition{given("Ready", "Unknown", "a", "b", created), given("MemoryPressure", "True", "a", "b", created)},
			[]corev1.NodeCondition{given("Ready", "Unknown", "a", "b", created), given("MemoryPressure", "True", "a", "b", created)}, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := posted("", created)
			node.Status.Conditions = tt.have
			before := node.DeepCopy()
			got, changed := unknownConditions(node, day)
			if diff := cmp.Diff(tt.want, got); diff != "" || changed != tt.changed {
				t.Errorf("changed = %v, want %v; conditions (-want +got):\n%s", changed, tt.changed, diff)
			}
			if diff := cmp.Diff(before, node); diff != "" {
				t.Errorf("the node itself was changed:\n%s", diff)
			}
		})
	}
}

func TestCredit(t *testing.T) {
	const grace = 50 * time.Second
	at := func(s int) time.Time { return day.Add(time.Duration(s) * time.Second) }
	for _, tt := range []struct {
		name string
		h    heartbeat
		b    blindness
		want heartbeat
	}{
		{"seen after the blindness: nothing to give", heartbeat{seen: at(80)}, blindness{at(10), at(80)}, heartbeat{seen: at(80)}},
		{"seen when it began: the blind time is free", heartbeat{seen: at(10)}, blindness{at(10), at(80)}, heartbeat{seen: at(80)}},
		{"silent before it began: a whole grace again, and it is counted", heartbeat{seen: at(0)}, blindness{at(10), at(80)}, heartbeat{seen: at(80), extended: 10 * time.Second}},
		{"an hour of blindness costs no more than a second", heartbeat{seen: at(0)}, blindness{at(10), at(3610)}, heartbeat{seen: at(3610), extended: 10 * time.Second}},
		{"the last of what may be given", heartbeat{seen: at(0), extended: 145 * time.Second}, blindness{at(10), at(80)}, heartbeat{seen: at(75), extended: 150 * time.Second}},
		{"used up: the blind time is still taken out", heartbeat{seen: at(0), extended: 150 * time.Second}, blindness{at(10), at(80)}, heartbeat{seen: at(70), extended: 150 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := credit(tt.h, tt.b, grace); got != tt.want {
				t.Errorf("credit = %+v, want %+v", got, tt.want)
			}
		})
	}
	t.Run("a sign of life starts a new account", func(t *testing.T) {
		h := heartbeat{seen: at(0), extended: 150 * time.Second}.afterLease(at(5), at(5))
		if want := (heartbeat{seen: at(5), renewed: at(5)}); h != want {
			t.Errorf("heartbeat = %+v, want %+v", h, want)
		}
	})
}
