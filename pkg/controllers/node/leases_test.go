package node

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// renewAs writes the Lease of a kubelet with a chosen time.
func (b *bench) renewAs(name string, at *metav1.MicroTime) {
	b.t.Helper()
	leases := b.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = at, nil
	if _, err := leases.Update(b.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.pass(time.Millisecond)
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
				if got := readiness(b.Node("dying0")); got != tt.want {
					t.Errorf("Ready = %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// A live read that shows an earlier renewTime is a sign of life.
func TestLiveLease(t *testing.T) {
	at := func(s int) time.Time { return day.Add(time.Duration(s) * time.Second) }
	h := heartbeat{seen: at(0), renewed: at(100)}
	for _, tt := range []struct {
		name    string
		renewed time.Time
		alive   bool
	}{
		{"the same", at(100), false}, {"none", time.Time{}, false}, {"later", at(101), true}, {"earlier", at(99), true},
	} {
		want := h
		if tt.alive {
			want.seen, want.renewed = at(5), tt.renewed
		}
		if got := h.afterLiveLease(tt.renewed, at(5)); got != want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
}

func TestLeaseComesAndGoes(t *testing.T) {
	objects, live, _ := cluster(3, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		leases := b.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		for range 12 { // another client deletes the Lease repeatedly, and the kubelet creates the Lease each time
			if err := leases.Delete(b.t.Context(), "dying0", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			b.pass(5 * time.Second)
			lease := aLease("dying0", time.Now())
			lease.UID = types.UID("lease-" + time.Now().String())
			b.create(lease)
			b.renew(live...)
			b.pass(5 * time.Second)
		}
		if got := readiness(b.Node("dying0")); got != "True" {
			t.Errorf("Ready = %s while the kubelet renews", got)
		}
		if err := leases.Delete(b.t.Context(), "dying0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.renewFor(46*time.Second, live...)
		if got := readiness(b.Node("dying0")); got != "Unknown" {
			t.Errorf("Ready = %s, want Unknown: no Lease and no status for a grace period", got)
		}
	})
}

// The watch of Leases ends and cannot be opened again, while all other requests succeed: an API server that rejects
// watches, or a proxy that cuts watches. Even if lists fail too, the controller reads the Lease before each
// status write.
func TestLeaseWatchThatCannotBeOpened(t *testing.T) {
	for _, lists := range []bool{true, false} {
		t.Run(fmt.Sprint("lists work ", lists), func(t *testing.T) {
			objects, live, dying := cluster(6, 1)
			inBubble(t, defaults(), objects, func(b *bench) {
				b.term()
				b.renewFor(10*time.Second, append(live, dying...)...)
				b.CutWatches("leases")
				if !lists {
					b.Break(errOutage, "list leases")
				}
				for i := range 24 {
					b.renewFor(10*time.Second, live...)
					if got := b.withStatus("True", live); got != 6 {
						b.t.Fatalf("%d of 6 live nodes Ready after %d s", got, 10*i)
					}
				}
				if got := b.withStatus("Unknown", dying); got != 1 && lists {
					b.t.Error("the dead node was not found")
				}
				if got := b.Count("get leases") + b.Count("list leases"); got > 6*2*26+200 { // kubelets read, too
					b.t.Errorf("%d reads of Leases", got)
				}
				b.RestoreWatches("leases")
				b.Break(nil, "list leases")
				b.renewFor(2*time.Minute, live...)
				if got := b.withStatus("True", live); got != 6 {
					b.t.Errorf("%d of 6 live nodes Ready in the end", got)
				}
				if got := b.withStatus("Unknown", dying); got != 1 {
					b.t.Error("the dead node was not found in the end")
				}
			})
		})
	}
}

func TestStatusWithoutLeaseKeepsANodeAlive(t *testing.T) {
	objects, live, _ := cluster(3, 0)
	inBubble(t, defaults(), append(objects, aNode("node", "zone", "True")), func(b *bench) {
		b.term()
		for range 10 {
			b.post("node", "True")
			b.renewFor(40*time.Second, live...)
		}
		if got := readiness(b.Node("node")); got != "True" {
			t.Errorf("Ready = %s", got)
		}
		b.renewFor(15*time.Second, live...)
		if got := readiness(b.Node("node")); got != "Unknown" {
			t.Errorf("Ready = %s, want Unknown", got)
		}
	})
}

func TestLeaseWritesThatRenewNothingKeepNobodyAlive(t *testing.T) {
	objects, live, _ := cluster(1, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(20*time.Second, live...)
		leases := b.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		lease, err := leases.Get(b.t.Context(), "dying0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Annotations = map[string]string{"migrated": "yes"}
		if _, err := leases.Update(b.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.renewFor(31*time.Second, live...)
		if got := readiness(b.Node("dying0")); got != corev1.ConditionUnknown {
			t.Errorf("Ready = %s, want Unknown", got)
		}
	})
}

func TestManyLiveReadsShareLists(t *testing.T) {
	objects, live, dying := cluster(5, 50)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.controller.leaseReads.Add(maxSingleReads) // reads that take long
		b.term()
		lists := b.Count("list leases")
		b.renewFor(51*time.Second, live...)
		gets := b.Count("get leases") - 6*5 // the kubelets read before they write
		if got := b.withStatus("Unknown", dying); got != 50 {
			t.Errorf("%d of 50 nodes Unknown", got)
		}
		if got := b.Count("list leases") - lists; got > 10 || gets > 0 {
			t.Errorf("%d lists and %d gets of Leases for 50 verdicts", got, gets)
		}
	})
}

// Kubelets renew every 10 s, so with a short grace period every node is always due soon.
func TestHealthyNodesAreNotDue(t *testing.T) {
	objects, live, _ := cluster(20, 1)
	cfg := defaults()
	cfg.MonitorGracePeriod = 16 * time.Second
	inBubble(t, cfg, objects, func(b *bench) {
		b.term()
		lists := b.Count("list leases")
		b.renewFor(17*time.Second, live...)
		if got := readiness(b.Node("dying0")); got != corev1.ConditionUnknown {
			t.Errorf("Ready = %s, want Unknown", got)
		}
		if got := b.Count("list leases") - lists; got > 1 {
			t.Errorf("%d lists of Leases, want none but the probe after eight quiet seconds", got)
		}
	})
}
