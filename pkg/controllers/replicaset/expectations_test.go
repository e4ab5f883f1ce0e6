package replicaset

import (
	"fmt"
	"testing"

	"minikcm/internal/fakeapi"
)

// TestCreatesReuseNamesFirst: a create with unknown outcome is repeated under the same name.
func TestCreatesReuseNamesFirst(t *testing.T) {
	drawn := 0
	draw := func() string { drawn++; return fmt.Sprint("web-", (drawn+1)/2) } // each twice
	free := func(string) bool { return false }
	c := creates{}
	names := c.chooseNames(3, draw, func(name string) bool { return name == "web-2" })
	fakeapi.WantEqual(t, "names, web-2 is taken", names, []string{"web-1", "web-3", "web-4"})
	fakeapi.Want(t, "attempts before any was begun", len(c), 0)
	for _, name := range names {
		fakeapi.Want(t, "attempt", c.start(name), attempt{name: name})
	}
	for _, a := range c {
		fakeapi.Want(t, "the outcome is unknown while the request is out", a.unknown, true)
	}
	lost := attempt{name: "web-4", unknown: true}
	delete(c, "web-1")                  // made
	c["web-4"] = lost                   // unknown outcome
	c["web-3"] = attempt{name: "web-3"} // rejected
	for n, want := range [][]string{{}, {"web-4"}, {"web-4", "web-3"}, {"web-4", "web-3", "web-5"}} {
		fakeapi.WantEqual(t, "names", c.chooseNames(n, draw, free), want)
	}
	fakeapi.Want(t, "next attempt", c.start("web-4"), lost)
}
