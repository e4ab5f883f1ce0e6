package freshness

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stalling returns a stream without data that ends with the request.
func stalling(req *http.Request) (*http.Response, error) {
	r, w := io.Pipe()
	context.AfterFunc(req.Context(), func() { w.CloseWithError(req.Context().Err()) })
	return &http.Response{StatusCode: http.StatusOK, Body: r}, nil
}

func get(t *testing.T, rt http.RoundTripper, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

const (
	streamingList = "https://server/api/v1/pods?watch=true&sendInitialEvents=true"
	plainWatch    = "https://server/api/v1/pods?watch=true"
)

func TestStalledStreamingListIsCutAndRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newTransport()
		rt := newPool(t, transport, roundTripper(stalling))
		start := time.Now()
		resp := get(t, rt, streamingList)
		_, err := io.ReadAll(resp.Body)
		if took := time.Since(start); err != nil || took != time.Minute {
			t.Errorf("stream ended with %v after %v, want its end after 1m", err, took)
		}
		resp.Body.Close()

		refused := get(t, rt, streamingList)
		body, _ := io.ReadAll(refused.Body)
		transport.Forget(leaseResource)
		if got := get(t, rt, streamingList).StatusCode; got != http.StatusUnprocessableEntity {
			t.Errorf("after another type was forgotten the stream is answered %d, want 422", got)
		}
		if refused.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(body), `"reason":"Invalid"`) {
			t.Errorf("second stream answered %d %s, want 422 Invalid", refused.StatusCode, body)
		}
		for name, url := range map[string]string{"plain watch": plainWatch, "another type": strings.Replace(streamingList, "pods", "nodes", 1)} {
			resp := get(t, rt, url)
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s answered %d, want 200", name, resp.StatusCode)
			}
			resp.Body.Close()
		}
	})
}

// A proxy that ends responses may cut every streaming list before it is complete. Pages are short enough.
func TestStreamingListsCutAreFollowedByAPlainList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := http.StatusOK
		transport := newTransport()
		rt := newPool(t, transport, roundTripper(func(*http.Request) (*http.Response, error) { return respond(code, ""), nil }))
		streams := func(want ...int) {
			t.Helper()
			for _, want := range want {
				if got := get(t, rt, streamingList).StatusCode; got != want {
					t.Errorf("streaming list answered %d, want %d", got, want)
				}
			}
		}
		code = http.StatusServiceUnavailable // no list has begun
		streams(503, 503, 503)
		code = http.StatusOK
		streams(200, 200, 422, 422)
		get(t, rt, strings.Replace(plainWatch, "pods", "nodes", 1)+"&resourceVersion=7")
		streams(422)
		get(t, rt, plainWatch+"&resourceVersion=7") // the list is complete
		streams(200, 200, 422)
		transport.Forget(podResource)
		streams(200)
	})
}

// A long list over a slow network has not stalled.
func TestStreamingListThatFlowsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newPool(t, newTransport(), roundTripper(func(req *http.Request) (*http.Response, error) {
			r, w := io.Pipe()
			context.AfterFunc(req.Context(), func() { w.CloseWithError(req.Context().Err()) })
			go func() {
				for range 20 {
					select {
					case <-time.After(30 * time.Second):
					case <-req.Context().Done():
						return
					}
					if _, err := w.Write([]byte("pod")); err != nil {
						return
					}
				}
			}()
			return &http.Response{StatusCode: http.StatusOK, Body: r}, nil
		}))
		start := time.Now()
		resp := get(t, rt, streamingList)
		text, err := io.ReadAll(resp.Body)
		if took := time.Since(start); len(text) != 60 || err != nil || took != 11*time.Minute {
			t.Errorf("stream ended with %v after %v and %d bytes, want it to be cut a minute after the last of 60, at 11m", err, took, len(text))
		}
		resp.Body.Close()
	})
}

func TestCompleteStreamingListIsNotCut(t *testing.T) {
	for name, parts := range map[string][]string{
		"JSON":                        {`{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`},
		"protobuf":                    {"pod\x00", "\x12\x19k8s.io/initial-events-end\x12\x04true"},
		"the text is cut by a read":   {`{"k8s.io/initial-ev`, `ents-end":"true"}`},
		"the text comes in bytes":     strings.Split("pods and k8s.io/initial-events-end and pods", ""),
		"long reads before and after": {strings.Repeat("x", 5000) + "k8s.io/initi", "al-events-end" + strings.Repeat("y", 5000)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := newPool(t, newTransport(), roundTripper(func(req *http.Request) (*http.Response, error) {
					r, w := io.Pipe()
					context.AfterFunc(req.Context(), func() { w.CloseWithError(req.Context().Err()) })
					go func() {
						for _, part := range parts {
							_, _ = io.WriteString(w, part)
						}
						time.Sleep(time.Hour)
						w.CloseWithError(io.ErrUnexpectedEOF)
					}()
					return &http.Response{StatusCode: http.StatusOK, Body: r}, nil
				}))
				start := time.Now()
				resp := get(t, rt, streamingList)
				text, err := io.ReadAll(resp.Body)
				if string(text) != strings.Join(parts, "") || err != nil || time.Since(start) != time.Hour {
					t.Errorf("%d bytes, %v after %v, want all and the end that the API server gave after 1h", len(text), err, time.Since(start))
				}
				resp.Body.Close()
			})
		})
	}
}
