package garbagecollector

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestSmallOwnersPassLargeOnes(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(began)
	d := newDues(c)
	var large, small []suspect
	for n := range 50_000 {
		large = append(large, suspect{keyOf(uid(n)), n})
	}
	d.note(large)
	c.SetTime(began.Add(time.Second))
	for n := range 10 {
		small = append(small, suspect{keyOf(uid(100_000 + n)), n})
	}
	d.note(small)
	before, last := 0, d.of(small[9].id)
	for _, o := range large {
		if d.of(o.id).Before(last) {
			before++
		}
	}
	if before > 1010 {
		t.Errorf("%d dependents of the large owner are before the last of the small one, want those of the second that it had alone", before)
	}
}

func TestDue(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(began)
	d := newDues(c)
	key := keyOf(uid(1))
	check := func(what string, want time.Duration) {
		t.Helper()
		if got := d.of(key).Sub(began); got != want {
			t.Errorf("%s: due after %v, want %v", what, got, want)
		}
	}
	check("nothing has woken it", 0)
	d.note([]suspect{{key, 500}})
	check("the 501st", 500*time.Millisecond)
	c.SetTime(began.Add(100 * time.Millisecond))
	d.note([]suspect{{key, 700}})
	check("the 701st of a later owner", 500*time.Millisecond)
	d.note([]suspect{{key, 0}})
	check("the first of another", 100*time.Millisecond)
	d.begin(key)
	check("once it was looked at", 100*time.Millisecond)
	if c.SetTime(began.Add(time.Hour)); len(d.at) != 0 {
		t.Errorf("%d times are kept for nothing", len(d.at))
	}
	check("when its timer wakes it", time.Hour)
}
