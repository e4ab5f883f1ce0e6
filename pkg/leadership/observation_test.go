package leadership

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"minikcm/internal/fakeapi"
)

var epoch = time.Unix(1e9, 0)

// lasting returns the Lease of a holder. renewed is a time of the holder's clock.
func lasting(seconds int, holder, version string, renewed time.Time) *coordinationv1.Lease {
	spec := resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: seconds, RenewTime: metav1.NewTime(renewed)})
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Spec: spec}
}

func held(holder, version string, renewed time.Time) *coordinationv1.Lease {
	return lasting(15, holder, version, renewed)
}

// given returns a released Lease.
func given(version string, at time.Time) *coordinationv1.Lease {
	lease := lasting(1, "", version, at)
	lease.Spec.AcquireTime = lease.Spec.RenewTime
	return lease
}

// bare returns a Lease with an empty spec.
func bare(version string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
}

// sight is an observation of the Lease, nil for none, in seconds after the epoch.
type sight struct {
	at       int
	lease    *coordinationv1.Lease
	response bool // to an own request
}

func TestFreeAt(t *testing.T) {
	ahead, behind := epoch.Add(time.Hour), epoch.Add(-time.Hour) // clocks of holders
	labelled := held("x", "11", ahead)
	labelled.Labels = map[string]string{"a": "b"}
	for _, tt := range []struct {
		name  string
		seen  []sight
		want  int // seconds after the epoch
		cause Cause
	}{
		{"no Lease", []sight{{at: 1}}, 1, CauseInitial},
		{"no Lease, twice", []sight{{at: 1}, {at: 3}}, 1, CauseInitial},
		{"held", []sight{{1, held("x", "10", ahead), false}}, 16, CauseExpired},
		{"renewed", []sight{{1, held("x", "10", ahead), false}, {3, held("x", "11", ahead.Add(time.Microsecond)), false}}, 18, CauseExpired},
		{"changed by another process", []sight{{1, held("x", "10", ahead), false}, {3, labelled, false}}, 16, CauseExpired},
		{"late event", []sight{{1, held("x", "10", ahead), false}, {3, held("y", "9", ahead), false}}, 16, CauseExpired},
		{"restored from a backup", []sight{{1, held("x", "10", ahead), false}, {3, held("y", "9", ahead), true}}, 18, CauseExpired},
		{"released", []sight{{1, held("x", "10", ahead), false}, {3, given("11", ahead), false}}, 3, CauseReleased},
		{"holder removed by hand, may still work", []sight{{1, held("x", "10", ahead), false}, {3, held("", "11", ahead), false}}, 18, CauseExpired},
		{"holder removed by hand from an extended lease", []sight{{1, lasting(45, "x", "10", ahead), false}, {3, held("", "11", ahead), false}}, 48, CauseExpired},
		{"long lease of other flags, renewed and deleted", []sight{{1, lasting(120, "x", "10", ahead), false}, {3, lasting(120, "x", "11", ahead.Add(time.Second)), false}, {at: 5}}, 123, CauseExpired},
		{"holder and duration removed before the first observation", []sight{{3, lasting(0, "", "11", ahead), false}}, 13, CauseExpired},
		{"spec removed by hand", []sight{{1, held("x", "10", ahead), false}, {3, bare("11"), false}}, 18, CauseExpired},
		{"only created", []sight{{3, bare("10"), false}}, 3, CauseInitial},
		{"extended lease", []sight{{1, lasting(45, "x", "10", ahead), false}}, 46, CauseExpired},
		{"shortened by hand", []sight{{1, held("x", "10", ahead), false}, {3, lasting(3, "x", "11", ahead), false}}, 13, CauseExpired},
		{"shortened by its holder", []sight{{1, held("x", "10", ahead), false}, {3, lasting(3, "x", "11", ahead.Add(time.Second)), false}}, 6, CauseExpired},
		{"short lease of a new holder", []sight{{1, held("x", "10", ahead), false}, {3, lasting(3, "y", "11", ahead.Add(time.Second)), false}}, 13, CauseExpired},
		{"held by this process", []sight{{1, held("me", "10", ahead), false}}, 1, CauseReacquired},
		{"deleted, holder may still work", []sight{{1, held("x", "10", ahead), false}, {at: 3}}, 16, CauseExpired},
		{"extended by hand and deleted", []sight{{1, lasting(1<<30, "x", "10", ahead), false}, {at: 3}}, 46, CauseExpired},
		{"extended and holder removed by hand, deleted", []sight{{1, lasting(1<<30, "x", "10", ahead), false}, {2, held("", "11", ahead), false}, {at: 3}}, 47, CauseExpired},
		{"released and deleted", []sight{{1, given("10", ahead), false}, {at: 3}}, 1, CauseInitial},
		{"deleted and created by another", []sight{{1, held("x", "10", ahead), false}, {at: 3}, {5, held("y", "12", behind), false}}, 20, CauseExpired},
	} {
		var o observation
		for _, s := range tt.seen {
			at := epoch.Add(time.Duration(s.at) * time.Second)
			switch {
			case s.lease == nil:
				o = o.withoutLease(at, 45*time.Second)
			case s.response:
				o = o.withResponse(s.lease, at)
			default:
				o = o.withEvent(s.lease, at)
			}
		}
		got, cause := o.freeAt("me", 10*time.Second)
		if want := epoch.Add(time.Duration(tt.want) * time.Second); !got.Equal(want) || cause != tt.cause {
			t.Errorf("%s: free %v after the epoch, %s; want %ds, %s", tt.name, got.Sub(epoch), cause, tt.want, tt.cause)
		}
	}
}

func TestNextAttempt(t *testing.T) {
	at := func(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }
	foreign := observation{}.withEvent(held("x", "10", epoch), at(0))
	free := observation{}.withEvent(given("10", epoch), at(0))
	for _, tt := range []struct {
		name string
		o    observation
		last lastAttempt
		want float64
	}{
		{"nothing seen yet, but without a response", observation{}, lastAttempt{at: at(3), pause: time.Second}, 4},
		{"held, just looked at", foreign, lastAttempt{at: at(0), version: "10", pause: time.Second}, 4},
		{"held, renewed all the time, by a watch that may be late", observation{}.withEvent(held("x", "16", epoch), at(13)), lastAttempt{at: at(1), version: "10", pause: time.Second}, 5},
		{"held, and expiry comes before the next look", foreign, lastAttempt{at: at(13), version: "10", pause: time.Second}, 15},
		{"expired, and the try failed", foreign, lastAttempt{at: at(15), version: "10", pause: time.Second}, 16},
		{"freed while the last try was on its way", free, lastAttempt{at: at(2), version: "9", pause: time.Second}, 0},
	} {
		fakeapi.Want(t, tt.name+": next attempt at", nextAttempt(tt.o, "me", 15*time.Second, tt.last, 4*time.Second).Sub(epoch).Seconds(), tt.want)
	}
	if got := nextAttempt(foreign, "me", 15*time.Second, lastAttempt{}, 0); got.After(epoch) {
		t.Errorf("first try at %v, want at once", got)
	}
}
