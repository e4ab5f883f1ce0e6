package leadership

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"minikcm/internal/timing"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// leaseServer keeps one Lease as an API server does: versions, conflicts and watches.
type leaseServer struct {
	lock    sync.Mutex
	lease   *coordinationv1.Lease
	version int
	watches []func(*coordinationv1.Lease)
}

// conn is the connection of one process to a leaseServer, with faults.
type conn struct {
	coordinationv1client.LeaseInterface // the elector does not use the other methods
	server                              *leaseServer

	lock   sync.Mutex
	err    error         // of every request
	slow   time.Duration // delay of responses; changes apply at once
	before func(verb string)
	told   error         // error of updates that were applied
	late   time.Duration // delay of updates, which get no response within 5 s
	frozen bool          // the watch delivers no events
	calls  []string
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
	err, late, slow, told := c.err, c.late, c.slow, c.told
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
	case err == nil && verb == "update" && told != nil:
		return nil, told
	}
	return lease, err
}

func (c *conn) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, "get", func() (*coordinationv1.Lease, error) {
		if lease := c.server.read(); lease != nil {
			return lease, nil
		}
		return nil, apierrors.NewNotFound(leases, name)
	})
}

func (c *conn) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, "create", func() (*coordinationv1.Lease, error) {
		if c.server.read() != nil {
			return nil, apierrors.NewAlreadyExists(leases, lease.Name)
		}
		return c.server.write(lease), nil
	})
}

func (c *conn) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, "update", func() (*coordinationv1.Lease, error) { return c.server.update(lease) })
}

// update stores lease, or returns a conflict.
func (s *leaseServer) update(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	switch now := s.read(); {
	case now == nil:
		return nil, apierrors.NewNotFound(leases, lease.Name)
	case now.ResourceVersion != lease.ResourceVersion:
		return nil, apierrors.NewConflict(leases, lease.Name, fmt.Errorf("it is at %s", now.ResourceVersion))
	}
	return s.write(lease), nil
}

func (s *leaseServer) read() *coordinationv1.Lease {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.lease.DeepCopy()
}

// write stores lease, or deletes the Lease if lease is nil, and notifies all watches.
func (s *leaseServer) write(lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.version++
	if lease = lease.DeepCopy(); lease != nil {
		lease.ResourceVersion = strconv.Itoa(s.version)
	}
	s.lease = lease
	for _, watch := range s.watches {
		go watch(lease.DeepCopy())
	}
	return lease.DeepCopy()
}

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
