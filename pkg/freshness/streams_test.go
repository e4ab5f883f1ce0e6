package freshness

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"minikcm/internal/fakeapi"
)

// streamParts returns a stream of parts, each after a gap, that ends with the request.
func streamParts(gap time.Duration, parts ...string) fakeapi.RoundTripper {
	return func(req *http.Request) (*http.Response, error) {
		r, w := io.Pipe()
		context.AfterFunc(req.Context(), func() { w.CloseWithError(req.Context().Err()) })
		go func() {
			for _, part := range parts {
				time.Sleep(gap)
				_, _ = io.WriteString(w, part)
			}
		}()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: r}, nil
	}
}

func get(t *testing.T, rt http.RoundTripper, url string) *http.Response {
	t.Helper()
	return fakeapi.Must(rt.RoundTrip(request(t.Context(), http.MethodGet, url)))
}

const (
	streamingList = server + "?watch=true&sendInitialEvents=true"
	plainWatch    = server + "?watch=true&resourceVersion=7"
)

// A streaming list without a byte for a minute is cut, and any other watch after three minutes.
func TestSilentWatchIsCut(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, tt := range []struct {
		name  string
		url   string
		gap   time.Duration
		parts []string
		want  time.Duration // the end
	}{
		{"list stalls", streamingList, 0, nil, time.Minute},
		{"list stalls after a part", streamingList, 0, []string{"pod"}, time.Minute},
		{"long list over a slow network", streamingList, 30 * time.Second, strings.Split(strings.Repeat("pod", 20), ""), 31 * time.Minute},
		{"list in JSON", streamingList, 0, []string{`{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`}, 3 * time.Minute},
		{"end of the list in bytes", streamingList, 0, strings.Split("pods and k8s.io/initial-events-end and pods", ""), 3 * time.Minute},
		{"end of the list in long reads", streamingList, 0, []string{long + "k8s.io/initi", "al-events-end" + long}, 3 * time.Minute},
		{"resumed watch", plainWatch, 0, nil, 3 * time.Minute},
		{"resumed watch with rare bookmarks", plainWatch, 2 * time.Minute, []string{"bookmark", "bookmark"}, 7 * time.Minute},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			transport := newTransport()
			rt := newPool(transport, streamParts(tt.gap, tt.parts...))
			start := time.Now()
			resp := get(t, rt, tt.url)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if took := time.Since(start); string(text) != strings.Join(tt.parts, "") || err != nil || took != tt.want {
				t.Errorf("%d bytes, %v after %v, want all and the end after %v", len(text), err, took, tt.want)
			}
			reopened := tt.url == plainWatch || strings.Contains(string(text), string(endOfList))
			fakeapi.Want(t, "watch was reopened", transport.activityOf(watchTarget{podResource, ""}).shortWatches > 0, reopened)
		})
	}
}

func TestSlowListIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newTransport()
		resp := get(t, newPool(transport, streamParts(0)), server)
		defer resp.Body.Close()
		sleep(time.Hour)
		fakeapi.Want(t, "connections were closed", transport.activityOf(watchTarget{podResource, ""}).shortWatches > 0, false)
	})
}

// A proxy that ends responses may cut every streaming list before it is complete. Pages are short enough.
func TestIncompleteStreamingListsAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var respondNow fakeapi.RoundTripper
		rt := newPool(newTransport(), fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) { return respondNow(req) }))
		const rejected = 0
		expect := func(url string, want ...int) {
			t.Helper()
			for _, want := range want {
				got := rejected
				resp, err := rt.RoundTrip(request(t.Context(), http.MethodGet, url))
				if err == nil {
					got = resp.StatusCode
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if got != want || got == rejected && !errors.Is(err, errNoStream) {
					t.Errorf("status %d, error %v; want status %d", got, err, want)
				}
			}
		}
		otherType := strings.NewReplacer("pods", "nodes")
		respondNow = respondAlways(http.StatusServiceUnavailable, "")
		expect(streamingList, 503, 503, 503) // no list has begun
		respondNow = respondAlways(http.StatusOK, "")
		expect(streamingList, 200, 200, rejected, rejected)
		expect(otherType.Replace(streamingList), 200)
		expect(otherType.Replace(plainWatch), 200)
		expect(streamingList, rejected)
		expect(plainWatch, 200) // the list is complete
		respondNow = streamParts(0)
		expect(streamingList, 200, rejected) // one stall is enough
	})
}
