package faults

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// errCut ends an exchange by resetting the client's stream.
var errCut = errors.New("cut by the test")

const (
	gateCapacity = 1024            // requests held at once before Held() is read
	gatePatience = 2 * time.Minute // of Gate.Next
)

// Gate stops requests until the test releases or cuts each request.
type Gate struct {
	held chan *Held
	open chan struct{}
	once sync.Once
}

// NewGate returns a closed gate, which several rules and proxies may share.
func NewGate() *Gate {
	return &Gate{held: make(chan *Held, gateCapacity), open: make(chan struct{})}
}

// Held yields each request that has arrived at the gate, in order of arrival.
func (g *Gate) Held() <-chan *Held { return g.held }

// Next waits at most two minutes for the next request to arrive.
func (g *Gate) Next(t testing.TB) *Held {
	t.Helper()
	select {
	case h := <-g.held:
		return h
	case <-time.After(gatePatience):
		t.Fatalf("no request arrived at the gate within %v", gatePatience)
		return nil
	}
}

// Open releases all requests at the gate and all later requests.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

func (g *Gate) awaitVerdict(ctx context.Context, r Request, abandon func()) error {
	select {
	case <-g.open:
		return nil
	default:
	}
	h := &Held{Request: r, abandon: abandon, verdict: make(chan error, 1)}
	select {
	case g.held <- h:
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-h.verdict:
		return err
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Held is a request stopped at a gate. Only the first call of Release or Cut has an effect.
type Held struct {
	Request Request

	abandon func()
	verdict chan error
}

// Release lets the request or the response continue.
func (h *Held) Release() { h.setVerdict(nil) }

// Cut resets the client's stream; a request held before forwarding never reaches the server.
func (h *Held) Cut() { h.setVerdict(errCut) }

// Abandon resets the client's stream and keeps the request held, to be committed late by Release. A held watch is cut.
func (h *Held) Abandon() { h.abandon() }

func (h *Held) setVerdict(err error) {
	select {
	case h.verdict <- err:
	default: // decided before
	}
}
