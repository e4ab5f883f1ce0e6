package kubeclient

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/transport"
)

// bearer sends requests with a token. Requests without a token wait for the same fetch, until their own
// deadlines. With client-go's transport each request would fetch a token in its turn and ignore its own
// deadline: a silent API server would block hundreds of requests for hours.
type bearer struct {
	tokens transport.ResettableTokenSource
	next   http.RoundTripper
	flight *singleflight.Group // of the account
}

// WrappedRoundTripper lets client-go find the TLS settings of next.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	begun := time.Now() // a newer token was not rejected
	token, err := b.token(req.Context())
	if err != nil {
		if req.Body != nil {
			req.Body.Close() // a RoundTripper must close the body
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

// token returns the current token, or waits for a fetch. A fetch outlives the requests that wait: the next
// request needs the token.
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
