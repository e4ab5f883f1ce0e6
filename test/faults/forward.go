package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"time"
)

type exchange struct {
	info    info
	fault   Fault
	entry   *entry
	client  *http.Request
	abandon context.CancelFunc // resets the client
	err     error
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

func (x *exchange) beforeForward(ctx context.Context) error {
	if err := sleepFor(ctx, x.fault.wait); err != nil {
		return err
	}
	if x.fault.before == nil {
		return nil
	}
	return x.fault.before.awaitVerdict(ctx, x.entry.copyRequest(), x.abandon)
}

func (x *exchange) afterCommit(ctx context.Context) error {
	if x.fault.after != nil {
		if err := x.fault.after.awaitVerdict(ctx, x.entry.copyRequest(), x.abandon); err != nil {
			return err
		}
	}
	if x.fault.drop {
		return errCut
	}
	return sleepFor(ctx, x.fault.answerWait)
}

func sleepFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newReverse(server *url.URL, transport http.RoundTripper, w *watches) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Header.Del("Authorization") // the transport adds the credentials of the target
			if exchangeOf(r.Out.Context()).fault.hiddenGroup != "" {
				r.Out.Header.Del("Accept-Encoding")
				r.Out.Header.Del("If-None-Match")
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(answer *http.Response) error {
			ctx := answer.Request.Context()
			x := exchangeOf(ctx)
			x.entry.setCode(answer.StatusCode)
			if err := x.afterCommit(ctx); err != nil {
				return err
			}
			if x.fault.hiddenGroup != "" && answer.StatusCode == http.StatusOK {
				return hideGroup(answer, x.fault.hiddenGroup)
			}
			if x.info.isWatch() && answer.StatusCode == http.StatusOK {
				answer.Body = w.startStream(ctx, x.info, x.client, answer)
				x.entry.markAnswered()
			}
			return nil
		},
		// The client must see a broken connection instead of a response of the proxy.
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) { exchangeOf(r.Context()).err = err },
	}
}

// serveRequest handles a request. A panic with http.ErrAbortHandler resets the client's stream.
func (p *Proxy) serveRequest(w http.ResponseWriter, r *http.Request) {
	i := parseRequest(r)
	fault := p.script.chooseFault(i, r)
	ctx, abandon := context.WithCancel(r.Context())
	defer abandon()
	x := &exchange{info: i, fault: fault, entry: p.journal.addRequest(r, i, fault.name), client: r, abandon: abandon}
	var err error
	if fault.isDetached() && !i.isWatch() {
		err = p.serveDetached(ctx, w, x)
	} else {
		err = p.serveAttached(ctx, w, x)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	x.entry.markAnswered()
}

func (p *Proxy) serveAttached(ctx context.Context, w http.ResponseWriter, x *exchange) error {
	if err := x.beforeForward(ctx); err != nil {
		return err
	}
	return p.forwardRequest(ctx, w, x, x.client.Body)
}

func (p *Proxy) forwardRequest(ctx context.Context, w http.ResponseWriter, x *exchange, body io.ReadCloser) error {
	if x.fault.refusal != nil {
		x.entry.setCode(x.fault.refusal.code)
		return x.fault.refusal.writeTo(w, x.client.Method, x.info)
	}
	x.entry.markForwarded()
	out := x.client.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	out.Body = body
	p.reverse.ServeHTTP(w, out)
	return x.err
}

// serveDetached forwards the request even if the client leaves. Requests and responses are kept in memory.
func (p *Proxy) serveDetached(ctx context.Context, w http.ResponseWriter, x *exchange) error {
	body, err := io.ReadAll(x.client.Body)
	if err != nil {
		return err
	}
	answer := httptest.NewRecorder()
	done := make(chan error, 1)
	started := p.startWorker(func() { done <- p.forwardDetached(x, body, answer) })
	if !started || x.fault.late {
		return errCut
	}
	select {
	case err := <-done:
		if err != nil {
			return err
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, err = w.Write(answer.Body.Bytes())
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Proxy) forwardDetached(x *exchange, body []byte, answer http.ResponseWriter) (err error) {
	defer func() {
		// The reverse proxy panics if the server ends the connection within the response.
		if reason := recover(); reason != nil {
			if reason != http.ErrAbortHandler {
				panic(reason)
			}
			err = errors.New("answer broken off")
		}
	}()
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.client.Context()))
	defer cancel()
	stop := context.AfterFunc(p.ctx, cancel)
	defer stop()
	if err := x.beforeForward(ctx); err != nil {
		return err
	}
	return p.forwardRequest(ctx, answer, x, io.NopCloser(bytes.NewReader(body)))
}
