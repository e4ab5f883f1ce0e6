package leadership

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
)

// refusals are temporary errors of an API server.
var refusals = []struct {
	name string
	err  error
}{
	{"too many requests", apierrors.NewTooManyRequests("slow down", 1)},
	{"etcd is slow", &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "etcdserver: request timed out"}}},
	{"conflict", apierrors.NewConflict(leases, "test", errors.New("another client was faster"))},
	{"connection reset", io.ErrUnexpectedEOF},
}

// perSecond bounds the requests for the lease: a GET and a PUT per retry period, and a reserve.
const perSecond = 2

// Requests for the lease fail for two minutes, for the leader, the standby or both. No process exits
// or sends too many requests. After that, a process leads within a lease duration.
func TestRejectionsPass(t *testing.T) {
	const rejecting = 2 * time.Minute
	for _, tt := range refusals {
		for _, to := range []string{"a", "b", "ab"} {
			bubble(t, tt.name+" for "+to, func(t *testing.T, s *leaseServer) {
				ps := []*process{start(t, s, "a"), start(t, s, "b")}
				sleep(time.Minute)
				calls := 0
				for _, p := range ps {
					if slices.Contains([]byte(to), p.cfg.Identity[0]) {
						p.conn.set(func(c *conn) { c.err = tt.err })
					}
					calls += p.conn.requests()
				}
				oneWriter(t, rejecting, ps...)
				for _, p := range ps {
					calls -= p.conn.requests()
					p.conn.set(func(c *conn) { c.err = nil })
				}
				if got, most := -calls, int(2*perSecond*rejecting.Seconds()); got > most {
					t.Errorf("%d requests in %v, want at most %d", got, rejecting, most)
				}
				oneWriter(t, 15*time.Second, ps...)
				if !ps[0].writable() && !ps[1].writable() {
					t.Errorf("no process leads, the lease is held by %q", s.holder())
				}
			})
		}
	}
}

// A restart of a former leader reads the kubeconfig again. A shorter rejection ends no process.
func TestRejectedCredentialsEndTheProcess(t *testing.T) {
	for _, err := range []error{apierrors.NewUnauthorized("expired"), &url.Error{Op: "Get", Err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}}} {
		bubble(t, fmt.Sprintf("%T", err), func(t *testing.T, s *leaseServer) {
			p, standby := start(t, s, "a"), start(t, s, "b")
			standby.conn.set(func(c *conn) { c.err = err })
			for _, rejected := range []error{nil, err, nil} {
				p.conn.set(func(c *conn) { c.err = rejected })
				oneWriter(t, 15*time.Second, p, standby)
			}
			p.conn.set(func(c *conn) { c.err = err })
			sleep(30 * time.Second)
			select {
			case <-p.done:
			default:
				t.Fatal("did not end")
			}
			fakeapi.Want(t, "ended with the error", errors.Is(p.err, err), true)
		})
	}
}

// oneWriter sleeps for d and fails if two processes may write at the same time, or a process has ended.
func oneWriter(t *testing.T, d time.Duration, ps ...*process) {
	t.Helper()
	for range d / (50 * time.Millisecond) {
		sleep(50 * time.Millisecond)
		var writers []string
		for _, p := range ps {
			_ = p.Healthy() // for the race detector
			if p.writable() {
				writers = append(writers, p.cfg.Identity)
			}
			select {
			case <-p.done:
				t.Fatalf("%s has ended: %v", p.cfg.Identity, p.err)
			default:
			}
		}
		if len(writers) > 1 {
			t.Fatalf("%v may write", writers)
		}
	}
}

// An administrator edits the lease of a running leader again and again. TestFreeAt has the edits of a dead leader's.
func TestLeaseEditedByHand(t *testing.T) {
	in := func(d time.Duration) *metav1.MicroTime { at := metav1.NewMicroTime(time.Now().Add(d)); return &at }
	for _, tt := range []struct {
		name string
		edit func(*coordinationv1.Lease)
	}{
		{"no holder", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") }},
		{"no holder, as a holder releases it", func(l *coordinationv1.Lease) {
			l.Spec = coordinationv1.LeaseSpec{HolderIdentity: new(""), LeaseDurationSeconds: new(int32(1)), AcquireTime: in(0), RenewTime: in(0)}
		}},
		{"no duration", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }},
		{"a short duration", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(1)) }},
		{"a long duration", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(60)) }},
		{"no times", func(l *coordinationv1.Lease) { l.Spec.RenewTime, l.Spec.AcquireTime = nil, nil }},
		{"renewed in an hour", func(l *coordinationv1.Lease) { l.Spec.RenewTime = in(time.Hour) }},
		{"another holder", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("other") }},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			ps := []*process{start(t, s, "a"), start(t, s, "b"), start(t, s, "c")}
			for range 20 {
				sleep(time.Second)
				lease := s.read()
				tt.edit(lease)
				s.write(lease)
				oneWriter(t, 2*time.Second, ps...)
			}
			oneWriter(t, 30*time.Second, ps...)
			if s.holder() == "other" {
				t.Error("a lease that no process renews is still held")
			}
		})
	}
}
