package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var day = time.Date(2015, 1, 1, 12, 0, 0, 0, time.UTC)

// Conditions are written as TYPE:STATUS. STOPPED is the status Unknown of a condition that the kubelet posted, NEVER of
// another.
func TestUnknownConditions(t *testing.T) {
	created := metav1.Date(2012, 1, 1, 0, 0, 0, 0, time.UTC)
	parse := func(text string) (conditions []corev1.NodeCondition) {
		for _, word := range strings.Fields(text) {
			kind, status, _ := strings.Cut(word, ":")
			c := corev1.NodeCondition{
				Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status), Reason: "a", Message: "b",
				LastHeartbeatTime: metav1.NewTime(created.Add(time.Hour)), LastTransitionTime: created,
			}
			switch status {
			case "STOPPED":
				c.Status, c.Reason, c.Message = "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
				c.LastTransitionTime = metav1.NewTime(day)
			case "NEVER":
				c.Status, c.Reason, c.Message = "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status."
				c.LastHeartbeatTime, c.LastTransitionTime = created, metav1.NewTime(day)
			}
			conditions = append(conditions, c)
		}
		return conditions
	}
	for _, tt := range []struct{ name, have, want string }{
		{"no conditions", "", "Ready:NEVER MemoryPressure:NEVER DiskPressure:NEVER PIDPressure:NEVER"},
		{"all conditions in another order", "PIDPressure:False MemoryPressure:True DiskPressure:False Ready:False",
			"PIDPressure:STOPPED MemoryPressure:STOPPED DiskPressure:STOPPED Ready:STOPPED"},
		{"conditions of other writers stay", "NetworkUnavailable:True Ready:True Lifecycle:True",
			"NetworkUnavailable:True Ready:STOPPED Lifecycle:True MemoryPressure:NEVER DiskPressure:NEVER PIDPressure:NEVER"},
		{"an Unknown condition keeps its texts and times", "Ready:True DiskPressure:Unknown",
			"Ready:STOPPED DiskPressure:Unknown MemoryPressure:NEVER PIDPressure:NEVER"},
		{"pressure alone is no reason to write", "Ready:Unknown MemoryPressure:True", "Ready:Unknown MemoryPressure:True"},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}, Status: corev1.NodeStatus{Conditions: parse(tt.have)}}
		before := node.DeepCopy()
		got, changed := unknownConditions(node, day)
		if diff := cmp.Diff(parse(tt.want), got); diff != "" || changed != (tt.want != tt.have) {
			t.Errorf("%s: changed = %v; conditions (-want +got):\n%s", tt.name, changed, diff)
		}
		if diff := cmp.Diff(before, node); diff != "" {
			t.Errorf("%s: the node itself was changed:\n%s", tt.name, diff)
		}
	}
}

func TestFirstDeadlineIsAMonitorPeriodAway(t *testing.T) {
	cfg := Config{MonitorGracePeriod: time.Millisecond, MonitorPeriod: time.Second}
	h := nodeHealth{ready: corev1.ConditionFalse}
	h.heartbeat.seen = day
	for after, silent := range map[time.Duration]bool{10 * time.Millisecond: false, 1001 * time.Millisecond: true} {
		if got := h.checkDeadline(cfg, day.Add(after)).silent; got != silent {
			t.Errorf("silent = %v %v after the first heartbeat, want %v", got, after, silent)
		}
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
		h := nodeHealth{ready: corev1.ConditionTrue, heartbeat: heartbeat{seen: at(tt.before.seen), extra: time.Duration(tt.before.extra) * time.Second}}
		h.restart(at(tt.since), at(tt.now), defaults())
		if got := (state{int(h.heartbeat.seen.Sub(day).Seconds()), int(h.heartbeat.extra.Seconds())}); got != tt.want {
			t.Errorf("%s: seen, extra = %v, want %v", tt.name, got, tt.want)
		}
	}
	h := heartbeat{seen: at(0), extra: 150 * time.Second}.afterLease(at(5), at(5))
	if want := (heartbeat{seen: at(5), renewed: at(5)}); h != want {
		t.Errorf("heartbeat after a sign of life = %+v, want %+v", h, want)
	}
}
