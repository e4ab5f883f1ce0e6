package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

const (
	// askTimeout is how long the API server may take to show one object.
	askTimeout = 10 * time.Second
	// repliesKept is how long a reply counts: longer than the longest pause between two questions, or failures in a row would not add up.
	repliesKept = 2 * maxPause
	// questionsAtOnce bounds how many owners are asked for at once for one object, and, twice that, for all objects about one type: an object may have
	// thousands, and an API may not answer.
	questionsAtOnce = 8
)

// owners asks the API server for owners, and remembers what it said for all that refer to them. What was said in an earlier term does
// not count: see [owners.reset].
type owners struct {
	client metadata.Interface
	clock  clock.PassiveClock

	lock    sync.Mutex
	replies map[target]*inquiry
	places  map[schema.GroupVersionResource]*semaphore.Weighted
	polled  time.Time // the latest moment at which an owner is to be asked for again of whose deletion no feed tells
}

// inquiry is what is known of one owner.
type inquiry struct {
	turn  chan struct{} // holds one while somebody asks, so that others wait for the answer instead of asking too
	reply reply         // guarded by the lock of owners
}

func newOwners(client metadata.Interface, clk clock.PassiveClock) *owners {
	return &owners{client: client, clock: clk, replies: map[target]*inquiry{}, places: map[schema.GroupVersionResource]*semaphore.Weighted{}}
}

// known is the latest reply about an owner, the zero reply if there is none.
func (o *owners) known(at target) reply {
	o.lock.Lock()
	defer o.lock.Unlock()
	if q := o.replies[at]; q != nil {
		return q.reply
	}
	return reply{}
}

// ask asks for an owner, unless somebody else has since the reply before, with which the caller could not decide. If it is found it is polled from then on if
// the caller says that no feed tells of it. It reports only that ctx, or the term,
// has ended, or that too many others are in line: whatever else there is to an answer is in the reply.
func (o *owners) ask(ctx context.Context, at target, before reply, polled bool) error {
	q := o.inquiry(at)
	if err := inTime(ctx, enter(q.turn)); err != nil {
		return err
	}
	defer func() { <-q.turn }()
	if o.known(at).asked.After(before.asked) {
		return nil
	}
	places := o.placesOf(at.GroupVersionResource)
	if err := inTime(ctx, func(ctx context.Context) error { return places.Acquire(ctx, 1) }); err != nil {
		return err
	}
	defer places.Release(1)
	asked := o.clock.Now()
	found, err := o.get(ctx, at)
	if err != nil && (ctx.Err() != nil || errors.Is(err, context.Canceled)) {
		return fmt.Errorf("get %v %q: %w", at.GroupResource(), at.name, err) // the term has ended, which says nothing about the owner
	}
	var m metav1.Object
	if err == nil {
		m = found
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	q.reply = q.reply.then(sayingOf(m, err, at.name), m, asked, o.clock.Now())
	if err == nil && polled && q.reply.asked.Equal(asked) && !q.reply.leaving {
		q.reply.poll = o.nextPoll()
	}
	return nil
}

// nextPoll is when to ask for an owner again, each at another moment. The lock is held.
func (o *owners) nextPoll() time.Time {
	o.polled = later(o.polled.Add(pollApart), o.clock.Now().Add(pollEvery))
	return o.polled
}

func (o *owners) get(ctx context.Context, at target) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return o.client.Resource(at.GroupVersionResource).Namespace(at.namespace).Get(ctx, at.name, metav1.GetOptions{})
}

func (o *owners) placesOf(r schema.GroupVersionResource) *semaphore.Weighted {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.places[r] == nil {
		o.places[r] = semaphore.NewWeighted(2 * questionsAtOnce)
	}
	return o.places[r]
}

func (o *owners) inquiry(at target) *inquiry {
	o.lock.Lock()
	defer o.lock.Unlock()
	q := o.replies[at]
	if q == nil {
		q = &inquiry{turn: make(chan struct{}, 1)}
		o.replies[at] = q
	}
	return q
}

// reset forgets everything, at the beginning of a term. Nobody may be asking.
func (o *owners) reset() {
	o.lock.Lock()
	defer o.lock.Unlock()
	clear(o.replies)
	clear(o.places)
	o.polled = time.Time{}
}

// prune forgets what is too old to matter.
func (o *owners) prune() {
	o.lock.Lock()
	defer o.lock.Unlock()
	now := o.clock.Now()
	for at, q := range o.replies {
		if len(q.turn) == 0 && now.Sub(later(q.reply.asked, q.reply.poll)) > repliesKept {
			delete(o.replies, at)
		}
	}
}
