package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"minikcm/pkg/kubeclient"
)

// Client is an uncached discovery client.
type Client interface {
	// ServerGroupsAndResourcesWithContext may return results along with an error of type ErrGroupDiscoveryFailed.
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
	RESTClient() rest.Interface
}

const (
	// timeout bounds one discovery, which is two attempts of two requests each. The client gives each of those 32 s.
	timeout = 90 * time.Second
	// maxAge bounds how long a complete answer is good for those it is not too old for.
	maxAge = 10 * time.Second
	// Pauses after an incomplete answer, doubled from the first to the last.
	minPause = time.Second
	maxPause = 30 * time.Second
	// hurryFor is how long the pause stays the first one after an APIService has changed: the aggregator asks
	// a repaired server for its types a few seconds later.
	hurryFor = 30 * time.Second
)

// Ask asks once. It takes a minute and a half at most; what did not answer by then is missing from the answer.
func Ask(ctx context.Context, client Client, clk clock.PassiveClock, wanted func(metav1.APIResource) bool) Answer {
	return ask(ctx, client, clk.Now(), wanted)
}

func ask(ctx context.Context, client Client, sent time.Time, wanted func(metav1.APIResource) bool) Answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Check before the discovery: an API server that has become ready since may have returned too few types.
	notReady := kubeclient.CheckReady(ctx, client.RESTClient())
	groups, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
	if apierrors.IsForbidden(notReady) && apierrors.IsForbidden(kubeclient.CheckReady(ctx, client.RESTClient())) {
		notReady = nil // The right is missing. At the first check the API server might not have read its roles yet.
	}
	answer := Select(groups, lists, err, sent, wanted)
	if notReady != nil {
		answer.Err, answer.Failing = errors.Join(notReady, answer.Err), nil // any type may be missing
	}
	return answer
}

// Catalogue asks for the API's types once for many who want to know. Its methods may be called from any goroutine.
type Catalogue struct {
	client Client
	clock  clock.PassiveClock
	wanted func(metav1.APIResource) bool

	lock    sync.Mutex
	latest  Answer        // zero before the first answer
	pause   time.Duration // after latest, if that is incomplete
	hurried time.Time     // when Hurry was called last
	running *inquiry      // nil if nobody is asking
}

// NewCatalogue returns a catalogue of the types that are wanted. Nobody has asked yet.
func NewCatalogue(client Client, clk clock.PassiveClock, wanted func(metav1.APIResource) bool) *Catalogue {
	return &Catalogue{client: client, clock: clk, wanted: wanted}
}

// inquiry is a discovery under way.
type inquiry struct {
	sent   time.Time
	done   chan struct{}
	answer Answer // valid once done is closed
	void   bool   // whoever asked had no more time: that says nothing about the API
}

// Read returns the types that are wanted. A complete answer comes from a request that was sent at notBefore or later.
// An incomplete one may be older, and comes with the time to wait before asking again. The error is that of ctx.
func (c *Catalogue) Read(ctx context.Context, notBefore time.Time) (Answer, time.Duration, error) {
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
			return Answer{}, 0, context.Cause(ctx)
		}
		if err := ctx.Err(); err != nil {
			return Answer{}, 0, err
		}
		switch {
		case under.void, !mine && under.sent.Before(notBefore): // our own is early only if the clock was set back
		case under.answer.Complete():
			return under.answer, 0, nil
		default:
			return under.answer, c.rest(), nil
		}
	}
}

// fresh decides whether an answer serves somebody who needs one sent at notBefore or later, and if it is
// incomplete, how long it is to be used until the next attempt.
func fresh(latest Answer, pause time.Duration, notBefore, now time.Time) (bool, time.Duration) {
	if latest.Complete() {
		return !latest.Sent.Before(notBefore) && now.Sub(latest.Sent) <= maxAge, 0
	}
	rest := latest.Sent.Add(pause).Sub(now)
	return !latest.Sent.IsZero() && rest > 0, rest
}

func (c *Catalogue) ask(ctx context.Context, q *inquiry) {
	defer close(q.done)
	defer func() { // whatever happens, or nobody would ever ask again
		c.lock.Lock()
		defer c.lock.Unlock()
		c.running = nil
	}()
	q.answer = ask(ctx, c.client, q.sent, c.wanted)

	c.lock.Lock()
	defer c.lock.Unlock()
	if ctx.Err() != nil || errors.Is(q.answer.Err, context.Canceled) {
		q.void = true
		return
	}
	c.latest = q.answer
	switch {
	case q.answer.Complete():
		c.pause = 0
	case c.clock.Since(c.hurried) < hurryFor:
		c.pause = minPause
	default:
		c.pause = min(max(2*c.pause, minPause), maxPause)
	}
}

// rest is how long the latest incomplete answer is to be used.
func (c *Catalogue) rest() time.Duration {
	c.lock.Lock()
	defer c.lock.Unlock()
	return max(c.latest.Sent.Add(c.pause).Sub(c.clock.Now()), minPause)
}

// Hurry ends the pause after an incomplete answer, because an APIService has changed.
func (c *Catalogue) Hurry() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.pause, c.hurried = 0, c.clock.Now()
}
