package leadership

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestAcquire runs the cases of client-go's elector tests. One differs: a record without a duration,
// which no elector writes, counts as the configured duration.
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
		leads       bool
		transitions int32
		keeps       bool // the acquire time
	}{
		{"no Lease", nil, 0, true, 0, false},
		{"a Lease nobody holds", record("", 1), 0, true, 8, false},
		{"a Lease that was only created", &resourcelock.LeaderElectionRecord{}, 0, true, 1, false},
		{"emptied by hand", record("", 15), 15*time.Second - 1, false, 7, true},
		{"emptied by hand, after the time its holder has", record("", 15), 15 * time.Second, true, 8, false},
		{"held, and first seen just now, whatever its times say", record("x", 15), 0, false, 7, true},
		{"held, a nanosecond before it expires", record("x", 15), 15*time.Second - 1, false, 7, true},
		{"held, and expired", record("x", 15), 15 * time.Second, true, 8, false},
		{"the duration that counts is the record's", record("x", 60), 59 * time.Second, false, 7, true},
		{"held without a duration, a nanosecond before one of ours would expire", record("x", 0), 15*time.Second - 1, false, 7, true},
		{"held without a duration, and expired", record("x", 0), 15 * time.Second, true, 8, false},
		{"held by ourselves", record("a", 15), 0, true, 7, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &leaseServer{}
				if tt.lease != nil {
					s.hold("")
					lease := s.read()
					lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(tt.lease)
					s.write(lease)
				}
				a := start(t, s, "a")
				sleep(tt.after)
				wantLeading(t, a, tt.leads)
				got := s.read().Spec
				if *got.LeaseTransitions != tt.transitions {
					t.Errorf("transitions = %d, want %d", *got.LeaseTransitions, tt.transitions)
				}
				if kept := got.AcquireTime.Time.Equal(long.Time); kept != tt.keeps {
					t.Errorf("acquire time kept = %v, want %v", kept, tt.keeps)
				}
				if tt.leads && *got.LeaseDurationSeconds != 15 {
					t.Errorf("duration = %d, want 15", *got.LeaseDurationSeconds)
				}
			})
		})
	}
}

// A renewal is one PUT. A GET follows only a failed PUT.
func TestRenewalPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		a := start(t, s, "a")
		a.conn.set(func(c *conn) { c.calls = nil })
		sleep(9 * time.Second)
		if want := []string{"update", "update", "update", "update"}; !slices.Equal(a.conn.calls, want) {
			t.Errorf("requests in 9s: %v, want %v", a.conn.calls, want)
		}
		lease := s.read()
		lease.Labels = map[string]string{"touched": "yes"}
		s.write(lease)
		a.conn.set(func(c *conn) { c.calls = nil })
		sleep(2 * time.Second)
		if want := []string{"update", "get", "update"}; !slices.Equal(a.conn.calls, want) {
			t.Errorf("requests of a renewal after a conflict: %v, want %v", a.conn.calls, want)
		}
		if s.read().Labels["touched"] != "yes" {
			t.Error("a renewal removed a label")
		}
		wantLeading(t, a, true)
		m := a.deps.Metrics
		master, slowpath := m.master.WithLabelValues("test"), m.slowpath.WithLabelValues("test")
		if leads, slow := testutil.ToFloat64(master), testutil.ToFloat64(slowpath); leads != 1 || slow != 1 {
			t.Errorf("while it leads, after one conflict: master status %v, slow path %v, want 1 and 1", leads, slow)
		}
		a.cancel()
		<-a.done
		if leads := testutil.ToFloat64(master); leads != 0 {
			t.Errorf("after the term: master status %v, want 0", leads)
		}
	})
}

func TestRelease(t *testing.T) {
	refused, forbidden := errors.New("refused"), apierrors.NewForbidden(schema.GroupResource{}, "test", nil)
	for _, tt := range []struct {
		name    string
		prepare func(*leaseServer, *conn)
		holder  string   // afterwards
		calls   []string // nil for any number
		err     error
	}{
		{"ours", func(*leaseServer, *conn) {}, "", []string{"get", "update"}, nil},
		{"somebody else's", func(s *leaseServer, _ *conn) { s.hold("x") }, "x", []string{"get"}, errNotOurs},
		{"the server refuses at first", func(_ *leaseServer, c *conn) {
			c.err = apierrors.NewUnauthorized("starting")
			time.AfterFunc(releasePause+time.Millisecond, func() { c.set(func(c *conn) { c.err = nil }) })
		}, "", []string{"get", "get", "get", "update"}, nil},
		{"the server refuses", func(_ *leaseServer, c *conn) { c.err = forbidden }, "a", nil, forbidden},
		{"a load balancer answers", func(_ *leaseServer, c *conn) {
			c.err = apierrors.NewGenericServerResponse(404, "get", leases, "test", "no such page", 0, true)
			time.AfterFunc(time.Second, func() { c.set(func(c *conn) { c.err = nil }) })
		}, "", nil, nil},
		{"gone", func(s *leaseServer, _ *conn) { s.write(nil) }, "-", []string{"get"}, errNotOurs},
		{"a renewal of ours arrives late", func(s *leaseServer, c *conn) {
			once := true
			c.before = func(verb string) {
				if verb == "update" && once {
					once = false
					s.hold("a")
				}
			}
		}, "", []string{"get", "update", "get", "update"}, nil},
		{"the server does not answer", func(_ *leaseServer, c *conn) { c.err = refused }, "a", nil, refused},
		{"the server does not answer for a while", func(_ *leaseServer, c *conn) {
			c.err = refused
			time.AfterFunc(4*time.Second, func() { c.set(func(c *conn) { c.err = nil }) })
		}, "", nil, nil},
		{"storage elects a leader", func(_ *leaseServer, c *conn) {
			c.err = &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "etcdserver: leader changed"}}
			time.AfterFunc(2*time.Second, func() { c.set(func(c *conn) { c.err = nil }) })
		}, "", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &leaseServer{}
				s.hold("a")
				c := &conn{server: s}
				l := &leaseClient{client: c, namespace: "kube-system", name: "test", identity: "a", clock: realClock}
				tt.prepare(s, c)
				ctx, cancel := context.WithTimeout(t.Context(), releaseTimeout)
				defer cancel()
				err := l.release(ctx, time.Time{})
				if !errors.Is(err, tt.err) || tt.err == nil && err != nil {
					t.Errorf("release = %v, want %v", err, tt.err)
				}
				if got := s.holder(); got != tt.holder {
					t.Errorf("holder = %q, want %q", got, tt.holder)
				}
				if tt.calls != nil && !slices.Equal(c.calls, tt.calls) {
					t.Errorf("requests = %v, want %v", c.calls, tt.calls)
				}
			})
		})
	}
}

func TestReleasedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		s.hold("x")
		sleep(time.Second)
		s.hold("")
		a := start(t, s, "a")
		transitions := *s.read().Spec.LeaseTransitions
		a.cancel()
		<-a.done
		got := s.read().Spec
		if *got.HolderIdentity != "" || *got.LeaseDurationSeconds != 1 || *got.LeaseTransitions != transitions {
			t.Errorf("released record: holder %q, %d s, %d transitions; want none, 1, %d",
				*got.HolderIdentity, *got.LeaseDurationSeconds, *got.LeaseTransitions, transitions)
		}
	})
}

// Every attempt to release fails with a conflict.
func TestReleaseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		a := start(t, s, "a")
		a.conn.set(func(c *conn) {
			c.slow = 100 * time.Millisecond
			c.before = func(verb string) {
				if verb == "update" {
					s.hold("a")
				}
			}
		})
		begun := time.Now()
		a.cancel()
		<-a.done
		if took := time.Since(begun); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("Run returned after %v, want about 5s", took)
		}
	})
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		a := start(t, s, "a")
		stop := make(chan struct{})
		for _, use := range []func(){
			func() { a.Check(nil) }, func() { a.Status() }, func() { a.Observe(s.read()) },
			func() { a.StepDown("x", func() bool { return true }) },
		} {
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
						use()
					}
				}
			}()
		}
		for range 20 {
			sleep(500 * time.Millisecond)
			s.hold("thief")
			sleep(500 * time.Millisecond)
			s.hold("")
		}
		close(stop)
		sleep(time.Second)
	})
}
