package namespace_test

import (
	"strings"
	"testing"
	"time"

	"minikcm/test/faults"
)

// The response to finalize is lost, and a client creates the namespace again before the retry.
func TestFinalizeWithoutResponse(t *testing.T) {
	t.Parallel()
	proxy := faults.New(t, rights("faulty"))
	m := start(t, func(s *setup) { s.rest = proxy.Config() })
	ns := create(t)
	gate := faults.NewGate()
	proxy.Inject(faults.Match{Verbs: "update", Resource: "namespaces/finalize", Name: ns}, faults.HoldAnswer(gate), faults.Next(1))
	remove(t, ns)
	answer := gate.Next(t)
	gone(t, ns, 5*time.Second)
	cluster.Create(t, named(t, ns), configMap(ns, "of-the-new-one"))
	seen := len(proxy.Requests())
	answer.Cut()
	other := create(t)
	remove(t, other)
	gone(t, other, 10*time.Second) // by then the controller has retried
	for _, r := range proxy.Requests()[seen:] {
		if strings.Contains(faults.Writes, r.Verb) && (r.Namespace == ns || r.Name == ns) {
			t.Errorf("%s %s after the namespace was made again", r.Verb, r.Path)
		}
	}
	m.Stop()
	start(t)
	remove(t, ns)
	gone(t, ns, 10*time.Second)
}
