package namespace

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
)

func TestOneAtATimeWaitsForASilentAPI(t *testing.T) {
	gv, other := schema.GroupVersion{Group: "a.io", Version: "v1"}, schema.GroupVersion{Group: "b.io", Version: "v1"}
	now := testclock.NewFakeClock(epoch)
	s := newSilence(now)
	ask := func(when string, want bool) {
		t.Helper()
		if got := s.of(gv); got != want {
			t.Errorf("%s: left alone %v, want %v", when, got, want)
		}
	}
	ask("nothing is known", false)
	s.note(gv, false)
	ask("it has not answered", true)
	if s.of(other) {
		t.Error("another group version is left alone, too")
	}
	now.Step(10*time.Second - 1)
	ask("the pause is not over", true)
	now.Step(1)
	ask("the first after the pause", false)
	ask("the second waits for the first", true)
	s.note(gv, true)
	ask("it has answered", false)
}
