package namespace

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
)

func TestAnAPIThatIsSlowForOneNamespaceKeepsOnlyThatOne(t *testing.T) {
	gv := schema.GroupVersion{Group: "a.io", Version: "v1"}
	now := testclock.NewFakeClock(epoch)
	s := newSilence(now)
	s.note("slow", gv, false)
	if !s.keeps("slow", gv) || s.keeps("other", gv) {
		t.Errorf("keeps slow %v and other %v, want the slow one only", s.keeps("slow", gv), s.keeps("other", gv))
	}
	s.note("other", gv, true)
	s.note("third", gv, false)
	if s.keeps("other", gv) {
		t.Error("two have had no answer, but somebody has had one between them")
	}
	now.Step(10 * time.Second)
	if s.keeps("slow", gv) || s.keeps("third", gv) {
		t.Error("kept after the pause")
	}
}

func TestOneAtATimeWaitsForASilentAPI(t *testing.T) {
	gv, other := schema.GroupVersion{Group: "a.io", Version: "v1"}, schema.GroupVersion{Group: "b.io", Version: "v1"}
	now := testclock.NewFakeClock(epoch)
	s := newSilence(now)
	ask := func(when string, want bool) {
		t.Helper()
		if got := s.keeps("third", gv); got != want {
			t.Errorf("%s: left alone %v, want %v", when, got, want)
		}
	}
	ask("nothing is known", false)
	s.note("first", gv, false)
	s.note("second", gv, false)
	ask("it has answered neither of two", true)
	if s.keeps("third", other) {
		t.Error("another group version is left alone, too")
	}
	now.Step(10*time.Second - 1)
	ask("the pause is not over", true)
	now.Step(1)
	ask("the first after the pause", false)
	ask("the second waits for the first", true)
	s.note("third", gv, true)
	ask("it has answered", false)
}
