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

type backend struct {
	server *httptest.Server

	lock      sync.Mutex
	committed []string
	events    []string // every event so far, as "resource text"
	more      map[chan struct{}]string
}

func newBackend(t *testing.T) *backend {
	b := &backend{more: map[chan struct{}]string{}}
	b.server = httptest.NewUnstartedServer(b)
	b.server.EnableHTTP2 = true
	b.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	return b
}

func (b *backend) config() *rest.Config {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.server.Certificate().Raw})
	return &rest.Config{Host: b.server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
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
	wake := make(chan struct{}, 1)
	b.lock.Lock()
	sent := len(b.events)
	b.more[wake] = resource
	b.lock.Unlock()
	defer func() {
		b.lock.Lock()
		defer b.lock.Unlock()
		delete(b.more, wake)
	}()
	w.(http.Flusher).Flush()
	for {
		b.lock.Lock()
		events := b.events[sent:]
		sent = len(b.events)
		b.lock.Unlock()
		for _, event := range events {
			text, ok := strings.CutPrefix(event, resource+" ")
			if ok && text == endOfStream {
				return
			}
			if ok {
				_, _ = io.WriteString(w, text+"\n")
				w.(http.Flusher).Flush()
			}
		}
		select {
		case <-wake:
		case <-r.Context().Done():
			return
		}
	}
}

func (b *backend) emit(resource, text string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.events = append(b.events, resource+" "+text)
	for wake := range b.more {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (b *backend) watching(resource string) int {
	b.lock.Lock()
	defer b.lock.Unlock()
	n := 0
	for _, r := range b.more {
		if r == resource {
			n++
		}
	}
	return n
}

func (b *backend) writes() []string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return append([]string(nil), b.committed...)
}

func clientFor(t *testing.T, p *Proxy) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func call(ctx context.Context, p *Proxy, client *http.Client, method, path, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.Config().Host+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(got), err
}

type outcome struct {
	code int
	body string
	err  error
}

// goCall is call in the background.
func goCall(ctx context.Context, p *Proxy, client *http.Client, method, path, body string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		code, got, err := call(ctx, p, client, method, path, body)
		done <- outcome{code, got, err}
	}()
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
