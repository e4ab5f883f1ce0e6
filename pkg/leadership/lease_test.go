package leadership

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"minikcm/internal/fakeapi"
)

// TestAcquire has the cases of client-go's elector tests.
func TestAcquire(t *testing.T) {
	long := metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	record := func(holder string, seconds int) *resourcelock.LeaderElectionRecord {
		return &resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: seconds,
			LeaderTransitions: 7, AcquireTime: long, RenewTime: long}
	}
	for _, tt := range []struct {
		name        string
		lease       *resourcelock.LeaderElectionRecord
		after       time.Duration // without writes
		transitions int32
		keeps       bool // the acquire time
	}{
		{"no Lease", nil, 0, 0, false},
		{"a Lease without a holder", record("", 1), 0, 8, false},
		{"a Lease that was only created", &resourcelock.LeaderElectionRecord{}, 0, 1, false},
		{"held, and expired", record("x", 15), 15 * time.Second, 8, false},
		{"held by ourselves", record("a", 15), 0, 7, true},
		{"transitions set to the maximum by hand", &resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, LeaderTransitions: math.MaxInt32}, 0, math.MaxInt32, false},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			if tt.lease != nil {
				s.hold("")
				lease := s.read()
				lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(tt.lease)
				s.write(lease)
			}
			a := start(t, s, "a")
			sleep(tt.after)
			wantLeading(t, a, true)
			got := s.read().Spec
			fakeapi.Want(t, "transitions", *got.LeaseTransitions, tt.transitions)
			fakeapi.Want(t, "acquire time kept", got.AcquireTime.Time.Equal(long.Time), tt.keeps)
			fakeapi.Want(t, "duration", *got.LeaseDurationSeconds, 15)
		})
	}
}

// A renewal is one PUT. A GET follows only a failed PUT.
func TestRenewalPaths(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a := start(t, s, "a")
		a.conn.set(func(c *conn) { c.calls = nil })
		sleep(9 * time.Second)
		fakeapi.Want(t, "requests in 9s", strings.Join(a.conn.calls, " "), "update update update update")
		lease := s.read()
		lease.Labels = map[string]string{"touched": "yes"}
		s.write(lease)
		a.conn.set(func(c *conn) { c.calls = nil })
		sleep(2 * time.Second)
		fakeapi.Want(t, "requests of a renewal after a conflict", strings.Join(a.conn.calls, " "), "update get update")
		fakeapi.Want(t, "label after a renewal", s.read().Labels["touched"], "yes")
		wantLeading(t, a, true)
		m := a.deps.Metrics
		master, slowpath := m.master.WithLabelValues("test"), m.slowpath.WithLabelValues("test")
		fakeapi.Want(t, "master status of a leader", testutil.ToFloat64(master), 1)
		fakeapi.Want(t, "slow paths after one conflict", testutil.ToFloat64(slowpath), 1)
		a.cancel()
		<-a.done
		fakeapi.Want(t, "master status after the term", testutil.ToFloat64(master), 0)
	})
}

// At shutdown the last record of client-go is written: no holder, a duration of a second.
func TestRelease(t *testing.T) {
	fail := func(err error, d time.Duration) func(*leaseServer, *conn) {
		return func(_ *leaseServer, c *conn) {
			c.err = err
			time.AfterFunc(d, func() { c.set(func(c *conn) { c.err = nil }) })
		}
	}
	renewBefore := func(updates int) func(*leaseServer, *conn) {
		return func(s *leaseServer, c *conn) {
			c.slow = 100 * time.Millisecond
			c.before = func(verb string) {
				if verb == "update" && updates > 0 {
					updates--
					s.hold("a")
				}
			}
		}
	}
	loadBalancer := apierrors.NewGenericServerResponse(404, "get", leases, "test", "no such page", 0, true)
	for _, tt := range []struct {
		name    string
		prepare func(*leaseServer, *conn)
		holder  string   // afterwards
		calls   []string // nil for any number
	}{
		{"held by this process", func(*leaseServer, *conn) {}, "", []string{"get", "update"}},
		{"held by another process", func(s *leaseServer, _ *conn) { s.hold("x") }, "x", []string{"get"}},
		{"deleted", func(s *leaseServer, _ *conn) { s.remove() }, "-", []string{"get"}},
		{"API server starts", fail(apierrors.NewUnauthorized("starting"), releasePause+1), "", []string{"get", "get", "get", "update"}},
		{"load balancer without a server", fail(loadBalancer, time.Second), "", nil},
		{"network is down for a while", fail(errors.New("connection refused"), 4*time.Second), "", nil},
		{"network is down", fail(errors.New("connection refused"), time.Hour), "a", nil},
		{"late renewal of this process", renewBefore(1), "", []string{"get", "update", "get", "update"}},
		{"conflict each time", renewBefore(1000), "a", nil},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			s.hold("x")
			s.hold("")
			a := start(t, s, "a")
			transitions := *s.read().Spec.LeaseTransitions
			a.conn.set(func(c *conn) {
				c.calls, c.frozen = nil, true
				tt.prepare(s, c)
			})
			begun := time.Now()
			a.cancel()
			<-a.done
			if took := time.Since(begun); a.err != nil || took > releaseTimeout+time.Second {
				t.Errorf("Run = %v after %v, want nil within %v", a.err, took, releaseTimeout)
			}
			fakeapi.Want(t, "holder", s.holder(), tt.holder)
			if tt.calls != nil {
				fakeapi.WantEqual(t, "requests", a.conn.calls, tt.calls)
			}
			if tt.holder != "" {
				return
			}
			fakeapi.Want(t, "duration of the released record", s.duration(), time.Second)
			fakeapi.Want(t, "transitions of the released record", *s.read().Spec.LeaseTransitions, transitions)
		})
	}
}

// Other processes see whole seconds, so deadlines of writes must count whole seconds too.
func TestLeaseDurationIsRoundedUp(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a := start(t, s, "a", func(_ *process, c *Config) { c.LeaseDuration = 15100 * time.Millisecond })
		fakeapi.Want(t, "duration in the Lease", s.duration(), 16*time.Second)
		fakeapi.Want(t, "duration that deadlines count from", a.cfg.LeaseDuration, 16*time.Second)
		fakeapi.Want(t, "shortest duration that counts for others", a.lease.minDuration, 16*time.Second)
	})
}
