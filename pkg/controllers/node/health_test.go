package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
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
		changed := setUnknown(node, day)
		if diff := cmp.Diff(parse(tt.want), node.Status.Conditions); diff != "" || changed != (tt.want != tt.have) {
			t.Errorf("%s: changed = %v; conditions (-want +got):\n%s", tt.name, changed, diff)
		}
	}
}

func TestFirstDeadlineIsAMonitorPeriodAway(t *testing.T) {
	cfg := Config{MonitorGracePeriod: time.Millisecond, MonitorPeriod: time.Second}
	h := nodeHealth{ready: corev1.ConditionFalse}
	h.heartbeat.seen = day
	for after, silent := range map[time.Duration]bool{10 * time.Millisecond: false, 1001 * time.Millisecond: true} {
		fakeapi.Want(t, fmt.Sprint("silent after ", after), h.evaluateDeadline(cfg, day.Add(after)).silent, silent)
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
		h.restartGracePeriod(at(tt.since), at(tt.now), defaults())
		fakeapi.Want(t, tt.name, (state{int(h.heartbeat.seen.Sub(day).Seconds()), int(h.heartbeat.extra.Seconds())}), tt.want)
	}
	h := heartbeat{seen: at(0), extra: 150 * time.Second}.afterLease(at(5), at(5))
	fakeapi.Want(t, "heartbeat after a sign of life", h, heartbeat{seen: at(5), renewed: at(5)})
}

// A Lease event between the read of the cached Lease and the record of the node would be lost.
func TestCachedLeaseIsReadUnderTheLock(t *testing.T) {
	m := &healthMap{nodes: map[string]nodeHealth{}}
	h := m.observe(aNode("node", "", "True"), func(string) time.Time {
		if m.lock.TryLock() {
			t.Error("an event of the Lease can be recorded while the node is unknown")
			m.lock.Unlock()
		}
		return epoch
	}, epoch.Add(time.Second))
	fakeapi.Want(t, "renewTime of the first heartbeat", h.heartbeat.renewed, epoch)
}

func TestLeasesOfOtherTimes(t *testing.T) {
	ahead := &metav1.MicroTime{Time: epoch.Add(24 * time.Hour)}
	for _, tt := range []struct {
		name  string
		first *metav1.MicroTime // renewTime at the beginning
		then  func(time.Time) *metav1.MicroTime
		want  corev1.ConditionStatus // after two minutes with a renewal every 10 s
	}{
		{"a clock that is far ahead", ahead, func(now time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: now.Add(24 * time.Hour)} }, "True"},
		{"a clock that is far behind", &metav1.MicroTime{Time: epoch.Add(-1e6 * time.Second)}, func(now time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: now.Add(-1e6 * time.Second)} }, "True"},
		{"a clock that was ahead and is set", ahead, func(now time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: now} }, "True"},
		{"never any time", nil, func(time.Time) *metav1.MicroTime { return nil }, "Unknown"},
		{"the same time over and over", ahead, func(time.Time) *metav1.MicroTime { return ahead }, "Unknown"},
		{"the time was taken away", ahead, func(time.Time) *metav1.MicroTime { return nil }, "Unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, 3, 1, nil, func(b *bench, live, _ []string) {
				b.renewAs("dying0", tt.first)
				b.term()
				for range 12 {
					b.renew(live...)
					b.renewAs("dying0", tt.then(time.Now()))
					b.pass(10 * time.Second)
					if tt.want == "True" && readiness(b.Node("dying0")) != "True" {
						b.T.Fatalf("Unknown after %v", time.Since(epoch))
					}
				}
				b.wantReady(tt.want, "dying0")
			})
		})
	}
}

// The watch of Leases ends and cannot be opened again, or delivers no events, while all other requests succeed: an API
// server that rejects watches, or a proxy that cuts or holds watches. Even if lists fail too, the controller reads the
// Lease before each status write.
func TestBrokenLeaseWatch(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		cut, frozen, noLists bool
	}{{"frozen", false, true, false}, {"cut", true, false, false}, {"cut, and lists fail", true, false, true}} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, 6, 1, nil, func(b *bench, live, dying []string) {
				b.term()
				b.renewFor(10*time.Second, append(live, dying...)...)
				b.Freeze("leases", tt.frozen)
				if tt.cut {
					b.CutWatches("leases")
				}
				if tt.noLists {
					b.Break(errOutage, "list leases")
				}
				for range 24 {
					b.renewFor(10*time.Second, live...)
					b.wantReady("True", live...)
				}
				if !tt.noLists {
					b.wantReady("Unknown", dying...)
				}
				if got := b.Count("get leases") + b.Count("list leases"); got > 6*2*26+200 { // kubelets read, too
					b.T.Errorf("%d reads of Leases", got)
				}
				b.Freeze("leases", false)
				b.RestoreWatches("leases")
				b.Break(nil, "list leases")
				b.renewFor(2*time.Minute, live...)
				b.wantReady("True", live...)
				b.wantReady("Unknown", dying...)
				fakeapi.Want(t, "suspended after the watch came back", b.controller.api.isSuspended(false, time.Now()), false)
			})
		})
	}
}
