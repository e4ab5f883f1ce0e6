package kubeclient

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/transport"

	"minikcm/internal/fakeapi"
)

// tokenSource returns a token after a time.
type tokenSource struct {
	takes   time.Duration
	err     error
	fetches int
}

func (s *tokenSource) Token() (*oauth2.Token, error) {
	s.fetches++
	time.Sleep(s.takes)
	if s.err != nil {
		return nil, s.err
	}
	return &oauth2.Token{AccessToken: "secret", Expiry: time.Now().Add(time.Hour)}, nil
}

func newBearer(source *tokenSource, next fakeapi.RoundTripper) *bearer {
	return &bearer{flight: new(singleflight.Group), tokens: transport.NewCachedTokenSource(source), next: next}
}

// get sends a request that ends after a time.
func (b *bearer) get(t *testing.T, within time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/", nil)
	_, err := b.RoundTrip(req)
	return err
}

func TestRequestsWaitForOneTokenTogether(t *testing.T) {
	away := errors.New("no response")
	for _, tt := range []struct {
		name   string
		source tokenSource
		most   time.Duration // that each request may take
		want   error
		after  time.Duration
	}{
		{"fetched", tokenSource{takes: 20 * time.Second}, time.Minute, nil, 20 * time.Second},
		{"not fetched", tokenSource{takes: tokenTimeout, err: away}, time.Minute, away, tokenTimeout},
		{"requests have shorter deadlines", tokenSource{takes: tokenTimeout, err: away}, 5 * time.Second, context.DeadlineExceeded, 5 * time.Second},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			b := newBearer(&tt.source, func(req *http.Request) (*http.Response, error) {
				fakeapi.Want(t, "authorization", req.Header.Get("Authorization"), "Bearer secret")
				return &http.Response{StatusCode: http.StatusOK}, nil
			})
			begun := time.Now()
			var requests sync.WaitGroup
			for range 10 {
				requests.Go(func() {
					err := b.get(t, tt.most)
					if took := time.Since(begun); !errors.Is(err, tt.want) || tt.want == nil && err != nil || took != tt.after {
						t.Errorf("%v after %v, want %v after %v", err, took, tt.want, tt.after)
					}
				})
			}
			requests.Wait()
			time.Sleep(tokenTimeout) // the fetch continues
			synctest.Wait()
			fakeapi.Want(t, "tokens that were fetched", tt.source.fetches, 1)
		})
	}
}

func TestRejectedTokenIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &tokenSource{}
		status := http.StatusUnauthorized
		b := newBearer(source, func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: status}, nil })
		for n, want := range []int{1, 1, 2, 2} { // the first response may concern the previous token
			if n == 2 {
				status = http.StatusOK
			}
			time.Sleep(time.Second)
			if err := b.get(t, time.Second); err != nil || source.fetches != want {
				t.Errorf("request %d: %v, %d tokens, want %d", n, err, source.fetches, want)
			}
		}
	})
}
