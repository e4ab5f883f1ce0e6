package kubeclient

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/transport"
)

// bearer sends requests with a token. Those that wait for one wait for the same, and no longer than they may themselves: client-go's transport would have each get
// one in its turn, and wait whatever becomes of it, so an API server that says nothing would hold up hundreds for hours.
type bearer struct {
	tokens transport.ResettableTokenSource
	next   http.RoundTripper
	flight *singleflight.Group // of the account
}

// WrappedRoundTripper lets client-go find the TLS settings below.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	begun := time.Now() // a token that is newer is not the one that is refused
	token, err := b.token(req.Context())
	if err != nil {
		if req.Body != nil {
			req.Body.Close() // a RoundTripper closes the body whatever happens
		}
		return nil, err
	}
	req = req.Clone(req.Context())
	token.SetAuthHeader(req)
	resp, err := b.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		b.tokens.ResetTokenOlderThan(begun)
	}
	return resp, err
}

// token returns the one in use, or waits for one. Getting it goes on when nobody waits any more: the next request needs it, too.
func (b *bearer) token(ctx context.Context) (*oauth2.Token, error) {
	fetched := b.flight.DoChan("", func() (any, error) { return b.tokens.Token() })
	select {
	case got := <-fetched:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(*oauth2.Token), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
