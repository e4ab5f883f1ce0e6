package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestCreatesUseUpNamesBeforeTheyDrawNewOnes: a create with unknown outcome is repeated under the same name.
func TestCreatesUseUpNamesBeforeTheyDrawNewOnes(t *testing.T) {
	drawn := 0
	draw := func() string { drawn++; return fmt.Sprint("web-", (drawn+1)/2) } // each twice
	free := func(string) bool { return false }
	var c Creates
	names := c.Choose(3, draw, func(name string) bool { return name == "web-2" })
	if !slices.Equal(names, []string{"web-1", "web-3", "web-4"}) {
		t.Fatalf("names %v, want web-1, web-3, web-4: web-2 is taken", names)
	}
	if len(c) > 0 {
		t.Errorf("attempts %v before any was begun", c)
	}
	for _, name := range names {
		if a := c.Start(name); a != (Create{Name: name}) {
			t.Errorf("attempt %+v, want a new one", a)
		}
	}
	for _, a := range c {
		if !a.Unknown || !a.Until.IsZero() {
			t.Errorf("attempt %+v while the request is out, want an unknown outcome without a time", a)
		}
	}
	lost := Create{Name: "web-4", Unknown: true, Until: now.Add(time.Minute)}
	c.Done("web-1")                // made
	c.Retry(lost)                  // unknown outcome
	c.Retry(Create{Name: "web-3"}) // rejected
	for n, want := range [][]string{{}, {"web-4"}, {"web-4", "web-3"}, {"web-4", "web-3", "web-5"}} {
		if got := c.Choose(n, draw, free); !slices.Equal(got, want) {
			t.Errorf("names %v, want %v", got, want)
		}
	}
	if again := c.Start("web-4"); again != lost {
		t.Errorf("next is %+v, want web-4, not answered", again)
	}
}

func TestCreatesEndWhenTheNameHasAnObject(t *testing.T) {
	c := Creates{{Name: "made", Unknown: true}, {Name: "refused, then made"}, {Name: "another's", Unknown: true}, {Name: "pending", Unknown: true}, {Name: "free"}}
	c.Resolve(func(name string) bool { return name != "pending" && name != "free" })
	want := Creates{{Name: "pending", Unknown: true}, {Name: "free"}}
	if !slices.Equal(c, want) {
		t.Errorf("left %v, want %v", c, want)
	}
	c.Retry(Create{Name: "unheard of"})
	c.Done("unheard of")
	if len(c) != 2 {
		t.Errorf("left %v after a name that nobody began", c)
	}
}
