package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
			objects, live, _ := cluster(3, 1)
			inBubble(t, defaults(), objects, func(b *bench) {
				b.renewAs("dying0", tt.first)
				b.term()
				for range 12 {
					b.renew(live...)
					b.renewAs("dying0", tt.then(time.Now()))
					b.pass(10 * time.Second)
					if tt.want == "True" && readiness(b.Node("dying0")) != "True" {
						b.t.Fatalf("Unknown after %v", time.Since(epoch))
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
			objects, live, dying := cluster(6, 1)
			inBubble(t, defaults(), objects, func(b *bench) {
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
					b.t.Errorf("%d reads of Leases", got)
				}
				b.Freeze("leases", false)
				b.RestoreWatches("leases")
				b.Break(nil, "list leases")
				b.renewFor(2*time.Minute, live...)
				b.wantReady("True", live...)
				b.wantReady("Unknown", dying...)
				if b.controller.api.isSuspended(false, time.Now()) {
					t.Error("suspended after the watch came back")
				}
			})
		})
	}
}
