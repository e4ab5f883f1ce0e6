package faults

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
)

const (
	patience    = time.Minute
	endOfStream = "END" // as an event: the server ends the watches of the resource
)

// backend is a server that records writes and serves watches.
type backend struct {
	server *httptest.Server

	lock      sync.Mutex
	committed []string
	watches   map[chan string]string // events and resource
}

// newTestProxy returns a backend behind a proxy, and a client of the proxy.
func newTestProxy(t *testing.T) (*backend, *Proxy, *http.Client) {
	t.Helper()
	b := &backend{watches: map[chan string]string{}}
	b.server = httptest.NewUnstartedServer(b)
	b.server.EnableHTTP2 = true
	b.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.server.Certificate().Raw})
	p := New(t, &rest.Config{Host: b.server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: authority}})
	return b, p, clientFor(t, p)
}

func clientFor(t *testing.T, p *Proxy) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(p.Config())
	controlplane.Must(t, err)
	return client
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i := parseRequest(r)
	switch {
	case r.Header.Get("Authorization") != "Bearer secret":
		w.WriteHeader(http.StatusUnauthorized)
	case i.isWatch():
		b.watch(w, r, i.resource)
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, "read")
	default:
		body, _ := io.ReadAll(r.Body)
		b.lock.Lock()
		b.committed = append(b.committed, fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body))
		b.lock.Unlock()
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	}
}

func (b *backend) watch(w http.ResponseWriter, r *http.Request, resource string) {
	events := make(chan string, 1000)
	b.lock.Lock()
	b.watches[events] = resource
	b.lock.Unlock()
	defer func() {
		b.lock.Lock()
		defer b.lock.Unlock()
		delete(b.watches, events)
	}()
	for {
		w.(http.Flusher).Flush()
		select {
		case text := <-events:
			if text == endOfStream {
				return
			}
			_, _ = io.WriteString(w, text+"\n")
		case <-r.Context().Done():
			return
		}
	}
}

func (b *backend) emit(resource, text string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	for events, of := range b.watches {
		if of == resource {
			events <- text
		}
	}
}

func (b *backend) watching(resource string) (n int) {
	b.lock.Lock()
	defer b.lock.Unlock()
	for _, of := range b.watches {
		if of == resource {
			n++
		}
	}
	return n
}

func (b *backend) writes() []string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return slices.Clone(b.committed)
}

type outcome struct {
	code int
	body string
	err  error
}

func call(ctx context.Context, p *Proxy, client *http.Client, method, body string) outcome {
	r, err := http.NewRequestWithContext(ctx, method, p.Config().Host+podsPath, strings.NewReader(body))
	if err != nil {
		return outcome{err: err}
	}
	answer, err := client.Do(r)
	if err != nil {
		return outcome{err: err}
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(answer.Body)
	return outcome{answer.StatusCode, string(got), err}
}

// goCall is call in the background.
func goCall(ctx context.Context, p *Proxy, client *http.Client, method, body string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { done <- call(ctx, p, client, method, body) }()
	return done
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	controlplane.Eventually(t, patience, func(context.Context) error {
		if !check() {
			return errors.New(what)
		}
		return nil
	})
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}
