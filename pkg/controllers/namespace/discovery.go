package namespace

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// Discovery is the one question we ask of an uncached discovery client.
type Discovery interface {
	// ServerGroupsAndResourcesWithContext may return results along with an error of type ErrGroupDiscoveryFailed.
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

const (
	// discoveryTimeout bounds one discovery, which is two attempts of two requests each. The client gives each of those 32 s.
	discoveryTimeout = 90 * time.Second
	// discoveryMaxAge bounds how long a complete answer is good for namespaces it is not too old for.
	discoveryMaxAge = 10 * time.Second
	// Pauses after an incomplete answer, doubled from the first to the last.
	minRediscover = time.Second
	maxRediscover = 30 * time.Second
	// hurryFor is how long the pause stays the first one after an APIService has changed: the aggregator asks a repaired
	// server for its types a few seconds later.
	hurryFor = 30 * time.Second
)

// catalogue asks for the API's types once for many namespaces.
type catalogue struct {
	client Discovery
	clock  clock.PassiveClock

	lock    sync.Mutex
	latest  content       // zero before the first answer
	pause   time.Duration // after latest, if that is incomplete
	hurried time.Time     // when hurry was called last
	running *inquiry      // nil if nobody is asking
}

// inquiry is a discovery under way.
type inquiry struct {
	sent   time.Time
	done   chan struct{}
	answer content // valid once done is closed
	void   bool    // whoever asked had no more time: that says nothing about the API
}

// read returns what may exist in namespaces. A complete answer comes from a request that was sent at notBefore or later.
// An incomplete one may be older, and comes with the time to wait before asking again. The error is that of ctx.
func (c *catalogue) read(ctx context.Context, notBefore time.Time) (content, time.Duration, error) {
	for {
		c.lock.Lock()
		now := c.clock.Now()
		if usable, pause := fresh(c.latest, c.pause, notBefore, now); usable {
			answer := c.latest
			c.lock.Unlock()
			return answer, pause, nil
		}
		under := c.running
		mine := under == nil
		if mine {
			under = &inquiry{sent: now, done: make(chan struct{})}
			c.running = under
		}
		c.lock.Unlock()

		if mine {
			c.ask(ctx, under)
		}
		select {
		case <-under.done:
		case <-ctx.Done():
			return content{}, 0, context.Cause(ctx)
		}
		if err := ctx.Err(); err != nil {
			return content{}, 0, err
		}
		switch {
		case under.void, under.sent.Before(notBefore): // somebody else's, given up, or begun too early for us
		case under.answer.complete():
			return under.answer, 0, nil
		default:
			return under.answer, c.rest(), nil
		}
	}
}

// fresh decides whether an answer serves somebody who needs one sent at notBefore or later, and if it is incomplete, how long it
// is to be used until the next attempt.
func fresh(latest content, pause time.Duration, notBefore, now time.Time) (bool, time.Duration) {
	if latest.complete() {
		return !latest.sent.Before(notBefore) && now.Sub(latest.sent) <= discoveryMaxAge, 0
	}
	rest := latest.sent.Add(pause).Sub(now)
	return !latest.sent.IsZero() && rest > 0, rest
}

func (c *catalogue) ask(ctx context.Context, q *inquiry) {
	defer close(q.done)
	defer func() { // whatever happens, or nobody would ever ask again
		c.lock.Lock()
		defer c.lock.Unlock()
		c.running = nil
	}()
	bounded, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	groups, lists, err := c.client.ServerGroupsAndResourcesWithContext(bounded)
	q.answer = selectContent(groups, lists, err, q.sent)

	c.lock.Lock()
	defer c.lock.Unlock()
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		q.void = true
		return
	}
	c.latest = q.answer
	switch {
	case q.answer.complete():
		c.pause = 0
	case c.clock.Since(c.hurried) < hurryFor:
		c.pause = minRediscover
	default:
		c.pause = min(max(2*c.pause, minRediscover), maxRediscover)
	}
}

// rest is how long the latest incomplete answer is to be used.
func (c *catalogue) rest() time.Duration {
	c.lock.Lock()
	defer c.lock.Unlock()
	return max(c.latest.sent.Add(c.pause).Sub(c.clock.Now()), minRediscover)
}

// hurry ends the pause after an incomplete answer, because an APIService has changed.
func (c *catalogue) hurry() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.pause, c.hurried = 0, c.clock.Now()
}
