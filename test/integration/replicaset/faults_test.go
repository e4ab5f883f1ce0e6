package replicaset

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"minikcm/test/faults"
)

// lag of the pod watch, so that the cache cannot replace a lost response.
const lag = 700 * time.Millisecond

func on(n *namespace, verbs string) faults.Match {
	return faults.Match{Verbs: verbs, Resource: "pods", Namespace: n.name}
}

// TestLostResponses: with lost responses and a late pod watch there are never surplus pods, and the controller never
// deletes below the bound.
func TestLostResponses(t *testing.T) {
	requests, watches := faults.New(t, controllerConfig(), faults.WithName("requests")), faults.New(t, controllerConfig(), faults.WithName("watches"))
	start(t, requests.Config(), watches.Config())
	watches.SlowWatches(faults.Watches("pods"), lag)
	for _, w := range deadlyWrites {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			v := newVictim(t, w, 0)
			v.settledAt(int(w.from))
			rule := requests.Inject(v.match(), faults.DropAnswer(), faults.Next(w.writes))
			v.bounds(w.least, w.most)
			w.act(v.n, v.rs)
			v.finish(t)
			if rule.Hits() != w.writes {
				t.Errorf("%d responses were lost, want %d", rule.Hits(), w.writes)
			}
		})
	}
	t.Run("LateWrites", func(t *testing.T) { testLateWrites(t, requests) })
}

// testLateWrites: the API server executes a write and its repetition after the manager has given up both.
func testLateWrites(t *testing.T, requests *faults.Proxy) {
	t.Parallel()
	for _, tt := range []struct {
		verb     string
		from, to int
		code     int // of the late writes
	}{{"create", 1, 3, 409}, {"delete", 4, 3, 404}} {
		t.Run(tt.verb, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			o := n.observe(n.apply(int32(tt.from)), 0, tt.from)
			o.settledAt(tt.from)
			gate := faults.NewGate()
			requests.Inject(on(n, tt.verb), faults.Hold(gate), faults.Next(2))
			o.bounds(min(tt.from, tt.to), max(tt.from, tt.to))
			n.scale("rs", int32(tt.to))
			first := gate.Next(t)
			first.Abandon()
			second := gate.Next(t) // the repetition
			second.Abandon()
			o.settledAt(tt.to)
			first.Release()
			second.Release()
			n.eventually(func(context.Context) error {
				late := slices.DeleteFunc(requests.Requests(), func(r faults.Request) bool {
					return r.Namespace != n.name || r.Resource != "pods" || r.Verb != tt.verb || r.Code != tt.code
				})
				if len(late) != 2 {
					return fmt.Errorf("requests with %d are %v, want the two late ones", tt.code, late)
				}
				return nil
			})
			if o.seen() != max(tt.from, tt.to) || first.Request.Name != second.Request.Name {
				t.Errorf("the ReplicaSet has had %d pods; late writes of %q and %q", o.seen(), first.Request.Name, second.Request.Name)
			}
		})
	}
}
