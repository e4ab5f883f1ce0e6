package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestCreatesUseUpNamesBeforeTheyDrawNewOnes: an attempt that was not answered is repeated under its name.
func TestCreatesUseUpNamesBeforeTheyDrawNewOnes(t *testing.T) {
	drawn := 0
	draw := func() string { drawn++; return fmt.Sprint("web-", drawn) }
	free := func(string) bool { return false }
	names := func(c *Creates, n int, taken func(string) bool) []string {
		var out []string
		for _, a := range c.Begin(n, draw, taken) {
			out = append(out, a.Name)
		}
		return out
	}
	var c Creates
	if got := names(&c, 3, func(name string) bool { return name == "web-2" }); !slices.Equal(got, []string{"web-1", "web-3", "web-4"}) {
		t.Fatalf("names %v, want web-1, web-3, web-4: web-2 is taken", got)
	}
	if len(c.Unanswered()) != 3 {
		t.Errorf("%d unanswered while the requests are out, want 3", len(c.Unanswered()))
	}
	lost := Attempt{Name: "web-3", Unknown: true, Until: now.Add(time.Minute)}
	c.End("web-1")                 // made
	c.Keep(lost)                   // not answered
	c.Keep(Attempt{Name: "web-4"}) // refused
	if got := c.Unanswered(); len(got) != 1 || !got[0].Equal(lost.Until) {
		t.Errorf("unanswered until %v, want one until %v", got, lost.Until)
	}
	if again := c.Begin(1, draw, free); again[0] != lost {
		t.Errorf("next is %+v, want web-3, not answered", again[0])
	}
	if got := names(&c, 3, free); !slices.Equal(got, []string{"web-3", "web-4", "web-5"}) {
		t.Errorf("names %v, want web-3, web-4, web-5", got)
	}
}

func TestCreatesEndWhenTheNameHasAnObject(t *testing.T) {
	c := Creates{{Name: "made", Unknown: true}, {Name: "refused, then made"}, {Name: "another's", Unknown: true}, {Name: "pending", Unknown: true}, {Name: "free"}}
	made := c.Resolve(func(name string) (found, ours bool) {
		return name != "pending" && name != "free", name != "another's"
	})
	want := Creates{{Name: "pending", Unknown: true}, {Name: "free"}}
	if made != 1 || !slices.Equal(c, want) {
		t.Errorf("%d made, left %v; want 1 and %v", made, c, want)
	}
	c.Keep(Attempt{Name: "unheard of"})
	c.End("unheard of")
	if len(c) != 2 {
		t.Errorf("left %v after a name that nobody began", c)
	}
}
