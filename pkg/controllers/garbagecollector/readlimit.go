package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/conversion"
)

const (
	// slowRead is the duration from which a failed read counts against its type. A live read of one object that ends
	// with 401, 403, 404, 405 or 406 does not count.
	slowRead = 2 * time.Second
	// slotTimeout is the maximum wait for a slot to send a request. A sync that sends nothing for two minutes counts
	// as stuck, so it ends with errBusy before.
	slotTimeout = 30 * time.Second
)

var (
	// errPaused has the text that outcome.EventMessage returns for a timeout: the paused read may have
	// concerned another namespace.
	errPaused = errors.New("API server did not respond")
	errBusy   = fmt.Errorf("too many requests are waiting: %w", context.Canceled)
)

// readLimiter bounds the reads in flight, per type and in all. A type whose reads hang backs off from minBackoff to
// maxBackoff. After each back-off a single read probes the type.
type readLimiter struct {
	clock   clock.PassiveClock
	perType int
	all     chan struct{} // slots of all types, for lists; nil for reads of single objects
	backoff *flowcontrol.Backoff
	slots   sync.Map // by schema.GroupVersionResource
}

func newReadLimiter(clk clock.Clock, perType int, all chan struct{}) *readLimiter {
	l := &readLimiter{clock: clk, perType: perType, all: all, backoff: flowcontrol.NewBackOff(minBackoff, maxBackoff)}
	l.backoff.Clock = clk
	return l
}

// do calls read when a slot is free, with a context that also ends with the term. Its error is that of read, errPaused,
// errBusy, or the end of the term.
func (l *readLimiter) do(ctx context.Context, t schema.GroupVersionResource, read func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	defer context.AfterFunc(controller.Term(ctx), func() { cancel(controller.ErrDraining) })()
	slotWait, stop := context.WithTimeoutCause(ctx, slotTimeout, errBusy)
	defer stop()
	for _, slots := range []chan struct{}{l.slotsOf(t), l.all} {
		if slots == nil {
			continue
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-slotWait.Done():
			return context.Cause(slotWait)
		}
	}
	switch {
	case controller.Draining(ctx):
		return controller.ErrDraining
	case l.backoffOf(t, 1) > 0:
		return errPaused
	}
	begun := l.clock.Now()
	err := read(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.Canceled):
	case errors.Is(err, context.DeadlineExceeded), conversion.IsWebhookFailure(err),
		err != nil && l.clock.Since(begun) >= slowRead && (l.all != nil || classifyRead(nil, err, "") == unavailable):
		if !l.backoff.IsInBackOffSinceUpdate(t.String(), l.clock.Now()) { // concurrent reads count once
			l.backoff.Next(t.String(), l.clock.Now())
		}
	default:
		l.backoff.Reset(t.String())
	}
	return err
}

// backoffOf returns a time after which a type may be read again, or 0 if it may be read now. own is the number of slots
// that the caller holds.
func (l *readLimiter) backoffOf(t schema.GroupVersionResource, own int) time.Duration {
	switch backoff := l.backoff.Get(t.String()); {
	case l.backoff.IsInBackOffSinceUpdate(t.String(), l.clock.Now()):
		return backoff
	case backoff > 0 && len(l.slotsOf(t)) > own: // another caller probes the type
		return slowRead
	}
	return 0
}

func (l *readLimiter) slotsOf(t schema.GroupVersionResource) chan struct{} {
	slots, _ := l.slots.LoadOrStore(t, make(chan struct{}, l.perType))
	return slots.(chan struct{})
}
