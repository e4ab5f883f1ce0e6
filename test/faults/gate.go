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

// Gate stops requests until the test lets each of them go.
type Gate struct {
	held chan *Held
	open chan struct{}
	once sync.Once
}

// NewGate returns a closed gate. One gate may serve several rules and proxies.
func NewGate() *Gate {
	return &Gate{held: make(chan *Held, gateCapacity), open: make(chan struct{})}
}

// Held yields each request that has arrived at the gate, in order of arrival.
func (g *Gate) Held() <-chan *Held { return g.held }

// Next waits for the next request to arrive and ends the test if none does within two minutes.
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

// Open lets go every request at the gate and those to come.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// pass blocks until the gate lets the request go; errCut if the test cut it. abandon resets the request's client.
func (g *Gate) pass(ctx context.Context, r Request, abandon func()) error {
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

// Held is one request stopped at a gate. The first call of Release or Cut decides.
type Held struct {
	Request Request // as it was on arrival

	abandon func()
	verdict chan error
}

// Release lets the request (or the answer) go on.
func (h *Held) Release() { h.decide(nil) }

// Cut resets the client's stream; a request held before forwarding never reaches the server.
func (h *Held) Cut() { h.decide(errCut) }

// Abandon resets the client's stream and keeps the request held, to be committed late by Release. A held watch is cut.
func (h *Held) Abandon() { h.abandon() }

func (h *Held) decide(err error) {
	select {
	case h.verdict <- err:
	default: // decided before
	}
}
