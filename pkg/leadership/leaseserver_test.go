package leadership

import (
	"context"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"minikcm/internal/fakeapi"
	"minikcm/internal/timing"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// leaseServer is an API server with one Lease.
type leaseServer struct {
	coordinationv1client.LeaseInterface
}

func newLeaseServer(t *testing.T) *leaseServer {
	return &leaseServer{fakeapi.NewClientset(t).CoordinationV1().Leases("kube-system")}
}

// conn is the connection of one process to a leaseServer, with faults.
type conn struct {
	coordinationv1client.LeaseInterface

	lock         sync.Mutex
	err          error         // of every request
	slow         time.Duration // delay of responses; changes apply at once
	before       func(verb string)
	lostResponse error         // error of updates that were applied
	late         time.Duration // delay of updates, which get no response within 5 s
	frozen       bool          // the watch delivers no events
	calls        []string
}

// Leases implements coordinationv1client.LeasesGetter.
func (c *conn) Leases(string) coordinationv1client.LeaseInterface { return c }

// set changes the faults of a connection.
func (c *conn) set(change func(*conn)) {
	c.lock.Lock()
	defer c.lock.Unlock()
	change(c)
}

// requests returns the number of requests.
func (c *conn) requests() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return len(c.calls)
}

// do runs a request with the faults of the connection.
func (c *conn) do(ctx context.Context, verb string, request func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	c.lock.Lock()
	before := c.before
	c.calls = append(c.calls, verb)
	c.lock.Unlock()
	if before != nil {
		before(verb)
	}
	c.lock.Lock()
	err, late, slow, lostResponse := c.err, c.late, c.slow, c.lostResponse
	c.lock.Unlock()
	switch {
	case err != nil:
		return nil, err
	case late > 0 && verb == "update":
		time.AfterFunc(late, func() { _, _ = request() })
		timing.Sleep(ctx, realClock, 5*time.Second) // the client timeout of an elector
		return nil, context.DeadlineExceeded
	}
	lease, err := request()
	if slow > 0 {
		timing.Sleep(ctx, realClock, slow)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil && verb == "update" && lostResponse != nil:
		return nil, lostResponse
	}
	return lease, err
}

func (c *conn) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, "get", func() (*coordinationv1.Lease, error) { return c.LeaseInterface.Get(ctx, name, o) })
}

func (c *conn) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, "create", func() (*coordinationv1.Lease, error) { return c.LeaseInterface.Create(ctx, lease, o) })
}

func (c *conn) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, "update", func() (*coordinationv1.Lease, error) { return c.LeaseInterface.Update(ctx, lease, o) })
}

// read returns nil if there is no Lease.
func (s *leaseServer) read() *coordinationv1.Lease {
	lease, err := s.Get(context.Background(), "test", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return lease
}

// write stores lease without a check of the version.
func (s *leaseServer) write(lease *coordinationv1.Lease) {
	lease.ResourceVersion = ""
	if _, err := s.Update(context.Background(), lease, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		fakeapi.Must(s.Create(context.Background(), lease, metav1.CreateOptions{}))
	}
}

func (s *leaseServer) remove() { _ = s.Delete(context.Background(), "test", metav1.DeleteOptions{}) }

// hold writes the Lease as holder does. An empty holder releases the Lease.
func (s *leaseServer) hold(holder string) {
	lease := s.read()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "test"}}
	}
	duration, now := int32(15), metav1.NowMicro()
	if holder == "" {
		duration = 1
	}
	if lease.Spec.AcquireTime == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != holder {
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, &duration, &now
	s.write(lease)
}

func (s *leaseServer) holder() string {
	lease := s.read()
	if lease == nil {
		return "-"
	}
	return *lease.Spec.HolderIdentity
}
