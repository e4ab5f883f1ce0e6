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
		{"checks come in steps of 200 ms", 50*time.Second - 350*time.Millisecond, 0, true, 5 * time.Second, judgement{recheck: 400*time.Millisecond + slack}},
		{"a period that is over does not shorten the grace", 10 * time.Second, 8 * time.Second, true, 5 * time.Second, judgement{recheck: 40*time.Second + slack}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := defaults()
			cfg.MonitorPeriod = tt.period
			var judged time.Time
			if tt.judged > 0 {
				judged = day.Add(-tt.judged)
			}
			h := nodeHealth{heartbeat: heartbeat{seen: day.Add(-tt.silence)}, judged: judged}
			if tt.hasReady {
				h.ready = corev1.ConditionTrue
			}
			got := h.judge(cfg, day)
			if got != tt.want {
				t.Errorf("judge = %+v, want %+v", got, tt.want)
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
		{"earlier renew time: the clock of the kubelet was set back", h.afterLease(created, now), true},
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

func TestRestart(t *testing.T) {
	at := func(s int) time.Time { return day.Add(time.Duration(s) * time.Second) }
	type state struct{ seen, extra int } // in seconds
	for _, tt := range []struct {
		name       string
		before     state
		since, now int
		want       state
	}{
		{"seen when the outage began", state{10, 0}, 10, 80, state{80, 0}},
		{"seen after the outage began", state{30, 0}, 10, 80, state{80, 0}},
		{"silent before the outage", state{0, 0}, 10, 80, state{80, 10}},
		{"an outage of an hour costs no more extra time than one of a second", state{0, 0}, 10, 3610, state{3610, 10}},
		{"the last extra time", state{0, 145}, 10, 80, state{80, 155}},
		{"no extra time is left", state{0, 150}, 10, 80, state{0, 150}},
		{"overdue before the outage", state{0, 0}, 51, 80, state{0, 150}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := nodeHealth{ready: corev1.ConditionTrue, heartbeat: heartbeat{seen: at(tt.before.seen), extra: time.Duration(tt.before.extra) * time.Second}}
			h.restart(at(tt.since), at(tt.now), defaults())
			if got := (state{int(h.heartbeat.seen.Sub(day).Seconds()), int(h.heartbeat.extra.Seconds())}); got != tt.want {
				t.Errorf("seen, extra = %v, want %v", got, tt.want)
			}
		})
	}
	h := heartbeat{seen: at(0), extra: 150 * time.Second}.afterLease(at(5), at(5))
	if want := (heartbeat{seen: at(5), renewed: at(5)}); h != want {
		t.Errorf("heartbeat after a sign of life = %+v, want %+v", h, want)
	}
}
