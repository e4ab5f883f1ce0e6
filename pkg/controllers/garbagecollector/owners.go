package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	client  metadata.Interface
	clock   clock.PassiveClock
	replies *inquiries[target, reply]

	lock   sync.Mutex
	polled time.Time // the latest moment at which an owner is to be asked for again of whose deletion no feed tells
}

func newOwners(client metadata.Interface, clk clock.PassiveClock) *owners {
	return &owners{client: client, clock: clk, replies: newInquiries[target, reply](clk, 2*questionsAtOnce)}
}

// known is the latest reply about an owner, the zero reply if there is none.
func (o *owners) known(at target) reply { return o.replies.latest(at) }

// pause is for how long owners of a type are not to be asked for, because its API does not answer; 0: they may be.
func (o *owners) pause(at target) time.Duration {
	return o.replies.pause(api{GroupVersionResource: at.GroupVersionResource})
}

// ask asks for an owner, unless somebody else has since the reply before, with which the caller could not decide, or its API does not answer. If it is found
// it is polled from then on if the caller says that no feed tells of it. It reports only that ctx, or the term,
// has ended, or that too many others are in line: whatever else there is to an answer is in the reply.
func (o *owners) ask(ctx context.Context, at target, before reply, polled bool) error {
	_, err := o.replies.ask(ctx, at, api{GroupVersionResource: at.GroupVersionResource},
		func(known reply) bool { return known.asked.After(before.asked) },
		func(ctx context.Context) (reply, error) { return o.put(ctx, at, polled) })
	var silent *silence
	if err == nil || errors.As(err, &silent) {
		return nil
	}
	return fmt.Errorf("get %v %q: %w", at.GroupResource(), at.name, err)
}

// put asks for an owner, and reports apart from the reply if there was no answer.
func (o *owners) put(ctx context.Context, at target, polled bool) (reply, error) {
	asked := o.clock.Now()
	found, err := o.get(ctx, at)
	var m metav1.Object
	if err == nil {
		m = found
	}
	says := sayingOf(m, err, at.name)
	next := o.known(at).then(says, m, asked, o.clock.Now())
	if err == nil && polled && next.asked.Equal(asked) && !next.leaving {
		next.poll = o.nextPoll()
	}
	if says != unable {
		err = nil
	}
	return next, err
}

// nextPoll is when to ask for an owner again, each at another moment.
func (o *owners) nextPoll() time.Time {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.polled = later(o.polled.Add(pollApart), o.clock.Now().Add(pollEvery))
	return o.polled
}

func (o *owners) get(ctx context.Context, at target) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return o.client.Resource(at.GroupVersionResource).Namespace(at.namespace).Get(ctx, at.name, metav1.GetOptions{})
}

// reset forgets everything, at the beginning of a term. Nobody may be asking.
func (o *owners) reset() {
	o.replies.reset()
	o.lock.Lock()
	defer o.lock.Unlock()
	o.polled = time.Time{}
}

// prune forgets what is too old to matter.
func (o *owners) prune() {
	now := o.clock.Now()
	o.replies.prune(func(r reply) bool { return now.Sub(later(r.asked, r.poll)) > repliesKept })
}
