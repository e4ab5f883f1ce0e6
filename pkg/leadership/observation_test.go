package leadership

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var epoch = time.Unix(1e9, 0)

// held returns the Lease of holder. renewed is a time of the holder's clock.
func held(holder, version string, renewed time.Time) *coordinationv1.Lease {
	spec := resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: 15, RenewTime: metav1.NewTime(renewed)})
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Spec: spec}
}

// given returns a released Lease.
func given(version string, at time.Time) *coordinationv1.Lease {
	spec := resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, AcquireTime: metav1.NewTime(at), RenewTime: metav1.NewTime(at)})
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Spec: spec}
}

// lasting returns a Lease with another duration.
func lasting(seconds int32, holder, version string, renewed time.Time) *coordinationv1.Lease {
	lease := held(holder, version, renewed)
	lease.Spec.LeaseDurationSeconds = &seconds
	return lease
}

// bare returns a Lease with an empty spec.
func bare(version string) *coordinationv1.Lease {
	lease := held("", version, epoch)
	lease.Spec = coordinationv1.LeaseSpec{}
	return lease
}

func TestFree(t *testing.T) {
	ahead, behind := epoch.Add(time.Hour), epoch.Add(-time.Hour) // clocks of holders
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	labelled := held("x", "11", ahead)
	labelled.Labels = map[string]string{"a": "b"}
	for _, tt := range []struct {
		name  string
		seen  func(observation) observation
		want  time.Duration // after the epoch
		cause Cause
	}{
		{"no Lease", func(o observation) observation { return o.withoutLease(at(1)) }, time.Second, CauseInitial},
		{"found missing again: since the first time", func(o observation) observation { return o.withoutLease(at(1)).withoutLease(at(3)) }, time.Second, CauseInitial},
		{"lasted: its duration after we saw it", func(o observation) observation { return o.withEvent(held("x", "10", ahead), at(1)) }, 16 * time.Second, CauseExpired},
		{"a holder whose clock is behind", func(o observation) observation { return o.withEvent(held("x", "10", behind), at(1)) }, 16 * time.Second, CauseExpired},
		{"renewed", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(held("x", "11", ahead.Add(time.Microsecond)), at(3))
		}, 18 * time.Second, CauseExpired},
		{"seen again unchanged", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(held("x", "10", ahead), at(3))
		}, 16 * time.Second, CauseExpired},
		{"changed, but not by the holder", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(labelled, at(3))
		}, 16 * time.Second, CauseExpired},
		{"a late event changes nothing", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(held("y", "9", ahead), at(3))
		}, 16 * time.Second, CauseExpired},
		{"restored from a backup: what is in etcd counts, whatever its version", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withResponse(held("y", "9", ahead), at(3))
		}, 18 * time.Second, CauseExpired},
		{"released", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(given("11", ahead), at(3))
		}, 3 * time.Second, CauseReleased},
		{"emptied by somebody else: its holder may still work", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(held("", "11", ahead), at(3))
		}, 18 * time.Second, CauseExpired},
		{"emptied by somebody else while it was long", func(o observation) observation {
			return o.withEvent(lasting(45, "x", "10", ahead), at(1)).withEvent(held("", "11", ahead), at(3))
		}, 48 * time.Second, CauseExpired},
		{"emptied by somebody else before we came", func(o observation) observation {
			return o.withEvent(lasting(0, "", "11", ahead), at(3))
		}, 13 * time.Second, CauseExpired},
		{"a Lease that was only created", func(o observation) observation { return o.withEvent(bare("10"), at(3)) }, 3 * time.Second, CauseInitial},
		{"emptied of everything by somebody else", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(bare("11"), at(3))
		}, 18 * time.Second, CauseExpired},
		{"a long lease", func(o observation) observation { return o.withEvent(lasting(45, "x", "10", ahead), at(1)) }, 46 * time.Second, CauseExpired},
		{"a short lease, which anybody may have written", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(lasting(3, "x", "11", ahead), at(3))
		}, 13 * time.Second, CauseExpired},
		{"a short lease that its holder has written", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(lasting(3, "x", "11", ahead.Add(time.Second)), at(3))
		}, 6 * time.Second, CauseExpired},
		{"a short lease that a new holder has written", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withEvent(lasting(3, "y", "11", ahead.Add(time.Second)), at(3))
		}, 13 * time.Second, CauseExpired},
		{"ours", func(o observation) observation { return o.withEvent(held("me", "10", ahead), at(1)) }, time.Second, CauseReacquired},
		{"deleted, its holder may still work", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withoutLease(at(3))
		}, 16 * time.Second, CauseExpired},
		{"released, then deleted", func(o observation) observation {
			return o.withEvent(given("10", ahead), at(1)).withoutLease(at(3))
		}, time.Second, CauseInitial},
		{"put back by another", func(o observation) observation {
			return o.withEvent(held("x", "10", ahead), at(1)).withoutLease(at(3)).withEvent(held("y", "12", behind), at(5))
		}, 20 * time.Second, CauseExpired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, cause := tt.seen(observation{}).freeAt("me", 10*time.Second)
			if got.Sub(epoch) != tt.want || cause != tt.cause {
				t.Errorf("free %v after the epoch, %s; want %v, %s", got.Sub(epoch), cause, tt.want, tt.cause)
			}
		})
	}
}

func TestNextTry(t *testing.T) {
	at := func(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }
	foreign := observation{}.withEvent(held("x", "10", epoch), at(0))
	free := observation{}.withEvent(given("10", epoch), at(0))
	for _, tt := range []struct {
		name string
		o    observation
		last lastAttempt
		want float64
	}{
		{"nothing seen yet, but the server did not answer", observation{}, lastAttempt{at: at(3), pause: time.Second}, 4},
		{"held, just looked at", foreign, lastAttempt{at: at(0), version: "10", pause: time.Second}, 4},
		{"held, renewed all the time, by a watch that may be late", observation{}.withEvent(held("x", "16", epoch), at(13)), lastAttempt{at: at(1), version: "10", pause: time.Second}, 5},
		{"held, and expiry comes before the next look", foreign, lastAttempt{at: at(13), version: "10", pause: time.Second}, 15},
		{"expired, and the try failed", foreign, lastAttempt{at: at(15), version: "10", pause: time.Second}, 16},
		{"free, and the try failed", free, lastAttempt{at: at(2), version: "10", pause: time.Second}, 3},
		{"free since the last try", free, lastAttempt{at: at(-1), version: "9", pause: time.Second}, 0},
		{"freed while the last try was on its way", free, lastAttempt{at: at(2), version: "9", pause: time.Second}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := nextAttempt(tt.o, "me", 15*time.Second, tt.last, 4*time.Second).Sub(epoch).Seconds(); got != tt.want {
				t.Errorf("next try at %vs, want %vs", got, tt.want)
			}
		})
	}
	if got := nextAttempt(foreign, "me", 15*time.Second, lastAttempt{}, 0); got.After(epoch) {
		t.Errorf("first try at %v, want at once", got)
	}
}
