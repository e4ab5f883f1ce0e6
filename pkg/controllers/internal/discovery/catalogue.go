// Package discovery reads which types an API server serves. Controllers for objects of all types select types
// by a predicate, and each type has one version. A result shows whether discovery was complete, and the
// failing group versions: a type of a failing group version may still exist.
package discovery

import (
	"context"
	"errors"
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
	// timeout bounds one discovery, which is two attempts of two requests each. The client gives each request 32 s.
	timeout = 90 * time.Second
	// maxAge bounds the age of a complete discovery.
	maxAge = 10 * time.Second
	// After an incomplete discovery, the pause doubles from minPause to maxPause.
	minPause = time.Second
	maxPause = 8 * time.Second
)

// FetchTypes sends one discovery. It takes at most a minute and a half, and lacks group versions without a response.
func FetchTypes(ctx context.Context, client Client, clk clock.PassiveClock, wanted func(metav1.APIResource) bool) Result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent := clk.Now()
	// Check before the discovery: an API server that has become ready since may have returned too few types.
	notReady := kubeclient.CheckReady(ctx, client.RESTClient())
	groups, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
	if apierrors.IsForbidden(notReady) && apierrors.IsForbidden(kubeclient.CheckReady(ctx, client.RESTClient())) {
		notReady = nil // The right is missing. At the first check the API server might not have read its roles yet.
	}
	result := SelectTypes(groups, lists, err, sent, wanted)
	if notReady != nil {
		result.Err, result.Failing = errors.Join(notReady, result.Err), nil // any type may be missing
	}
	return result
}

// Catalogue shares discoveries between concurrent callers.
type Catalogue struct {
	client Client
	clock  clock.PassiveClock
	wanted func(metav1.APIResource) bool

	turn   chan struct{} // holds one element while the fields below are in use
	latest Result        // zero before the first discovery
	pause  time.Duration // after latest; zero if that is complete
	until  time.Time     // end of the pause
}

// NewCatalogue returns a catalogue of the wanted types. It sends no request.
func NewCatalogue(client Client, clk clock.PassiveClock, wanted func(metav1.APIResource) bool) *Catalogue {
	return &Catalogue{client: client, clock: clk, wanted: wanted, turn: make(chan struct{}, 1)}
}

// Read returns the wanted types. A complete discovery was sent at notBefore or later, an incomplete one may be
// older. The error is that of ctx.
func (c *Catalogue) Read(ctx context.Context, notBefore time.Time) (Result, error) {
	called := c.clock.Now() // the wait for another discovery does not count as age
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	if c.latest.Complete() && !c.latest.Sent.Before(notBefore) && called.Sub(c.latest.Sent) <= maxAge || called.Before(c.until) {
		return c.latest, nil
	}
	result := FetchTypes(ctx, c.client, c.clock, c.wanted)
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if errors.Is(result.Err, context.Canceled) {
		return result, nil // the fence has rejected the requests
	}
	c.latest = result
	if result.Complete() {
		c.pause, c.until = 0, time.Time{}
	} else {
		c.pause = min(max(2*c.pause, minPause), maxPause)
		c.until = c.clock.Now().Add(c.pause)
	}
	return result, nil
}
