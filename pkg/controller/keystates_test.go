package controller

import "testing"

func TestKeyStates(t *testing.T) {
	states := NewKeyStates[string](func() *int { return new(int) })
	sum := func() (n int) {
		states.ForEach(func(s *int) { n += *s })
		return n
	}
	old := states.For("web", "one")
	states.Update("web", func(s *int) { *s = 7 })
	states.Update("unknown", func(*int) { t.Error("updated a state that does not exist") })
	if states.For("web", "one") != old || sum() != 7 {
		t.Errorf("the state of an object was lost, sum %d", sum())
	}
	if states.For("web", "two") == old || sum() != 0 {
		t.Error("an object inherited the state of an earlier object with its name")
	}
	states.For("db", "three")
	states.Delete("web")
	states.Update("db", func(s *int) { *s = 5 })
	if sum() != 5 {
		t.Errorf("sum %d after a deletion, want 5", sum())
	}
	states.Reset()
	if sum() != 0 || *states.For("db", "three") != 0 {
		t.Error("a new term inherited a state")
	}
}
