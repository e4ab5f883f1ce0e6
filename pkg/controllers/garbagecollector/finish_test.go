package garbagecollector

import (
	"testing"
	"time"
)

func TestFinish(t *testing.T) {
	const (
		front = seen | terminating | foreground
		let   = seen | terminating | orphaning
		s     = time.Second
	)
	for _, tt := range []struct {
		name string
		m    marks
		o    ownerSight
		want next
	}{
		{"it is not being deleted", seen | foreground, ownerSight{}, next{do: nothing}},
		{"which types there are is not known", front, ownerSight{undiscovered: true}, next{do: hold, why: byBlindness, after: s / 50}},
		{"nor a while later", front, ownerSight{undiscovered: true, waited: s / 2}, next{do: hold, why: byBlindness, after: s / 2}},
		{"nor after an hour", front, ownerSight{undiscovered: true, waited: time.Hour}, next{do: hold, why: byBlindness, after: s}},
		{"but that a dependent lives is", front, ownerSight{undiscovered: true, blocking: 1, idle: 1}, next{do: collect, why: byIdle, after: 30 * s}},
		{"orphans: which types there are now is not known", let, ownerSight{undiscovered: true, refs: 3}, next{do: hold, why: byBlindness, after: s / 50}},
		{"for however long that is so", let, ownerSight{undiscovered: true, waited: 24 * time.Hour}, next{do: hold, why: byBlindness, after: s}},
		{"somebody took the finalizer away", seen | terminating | held, ownerSight{blocking: 1}, next{do: nothing}},
		{"it is gone", 0, ownerSight{}, next{do: nothing}},

		{"dependents live", front, ownerSight{blocking: 2, idle: 1, waiting: 1}, next{do: collect, why: byIdle, after: 30 * s}},
		{"and have for long", front, ownerSight{blocking: 2, idle: 1, waited: 100 * s}, next{do: collect, why: byIdle, after: 100 * s}},
		{"and for very long", front, ownerSight{blocking: 2, idle: 1, waited: time.Hour}, next{do: collect, why: byIdle, after: 300 * s}},
		{"something holds a dependent", front, ownerSight{blocking: 1}, next{do: hold, why: byFinalizers, after: 30 * s}},
		{"and another waits", front, ownerSight{blocking: 2, waiting: 1, ring: true, waited: time.Hour}, next{do: hold, why: byFinalizers, after: 300 * s}},
		{"all wait, since a moment", front, ownerSight{blocking: 2, waiting: 2, ring: true, waited: s / 4, still: s / 4}, next{do: hold, why: byDependents, after: 3 * s / 4}},
		{"all wait, but one has just gone", front, ownerSight{blocking: 2, waiting: 2, waited: time.Hour, still: s / 4}, next{do: hold, why: byDependents, after: 3 * s / 4}},
		{"all wait", front, ownerSight{blocking: 2, waiting: 2, waited: s, still: s}, next{do: hold, why: byDependents, after: 30 * s}},
		{"all wait, for it", front, ownerSight{blocking: 2, waiting: 2, ring: true, waited: s, still: s}, next{do: unblock, why: byDependents, after: 30 * s}},
		{"the graph shows none", front, ownerSight{}, next{do: finalize}},
		{"the graph shows none that blocks", front, ownerSight{refs: 5}, next{do: finalize}},
		{"a type is being listed", front, ownerSight{blind: 1, waited: time.Hour}, next{do: hold, why: byBlindness, after: s}},
		{"a dependent is there, and a type is being listed", front, ownerSight{blocking: 1, blind: 1, waited: time.Hour}, next{do: hold, why: byFinalizers, after: 300 * s}},

		{"orphans: nobody has looked", let, ownerSight{refs: 3}, next{do: list}},
		{"nobody has looked for long", let, ownerSight{waited: time.Hour}, next{do: list}},
		{"some refer to it", let, ownerSight{looked: true, refs: 3}, next{do: orphan, why: byRefs, after: 30 * s}},
		{"some do, and not all could be looked at", let, ownerSight{looked: true, refs: 3, blind: 1}, next{do: orphan, why: byRefs, after: 30 * s}},
		{"none does where one could look", let, ownerSight{looked: true, blind: 1}, next{do: hold, why: byBlindness, after: 30 * s}},
		{"one of them is left alone for a moment, because it does not answer", let, ownerSight{looked: true, blind: 1, again: 2 * s}, next{do: hold, why: byBlindness, after: 2 * s}},
		{"and has been left alone often", let, ownerSight{looked: true, blind: 1, again: 2 * s, waited: 80 * s}, next{do: hold, why: byBlindness, after: 10 * s}},
		{"and very often", let, ownerSight{looked: true, blind: 1, again: 2 * s, waited: time.Hour}, next{do: hold, why: byBlindness, after: 30 * s}},
		{"and is left alone for long", let, ownerSight{looked: true, blind: 1, again: 60 * s}, next{do: hold, why: byBlindness, after: 30 * s}},
		{"for however long", let, ownerSight{looked: true, blind: 1, waited: 24 * time.Hour}, next{do: hold, why: byBlindness, after: 30 * s}},
		{"none does", let, ownerSight{looked: true}, next{do: finalize}},
		{"whether dependents hold it does not matter", let, ownerSight{looked: true, blocking: 3, idle: 3}, next{do: finalize}},
		{"a namesake is being deleted, too", let, ownerSight{meant: uid(5), looked: true}, next{do: nothing}},
		{"in either way", front, ownerSight{meant: uid(5), looked: true}, next{do: nothing}},
		{"both finalizers: nothing is lost", let | foreground, ownerSight{looked: true, blocking: 3, idle: 3, refs: 3}, next{do: orphan, why: byRefs, after: 30 * s}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.owner.marks = tt.m
			if got := finish(tt.o); got != tt.want {
				t.Errorf("next is %+v, want %+v", got, tt.want)
			}
		})
	}
}

// What must hold for every sight.
func TestOwnersAreNotLetGoTooEarly(t *testing.T) {
	for _, m := range []marks{foreground, orphaning, foreground | orphaning} {
		for n := range 3 * 3 * 3 * 3 {
			for bits := range 16 {
				for _, waited := range []time.Duration{0, time.Second, 29 * time.Second, 30 * time.Second, time.Hour} {
					o := ownerSight{
						owner: object{marks: seen | terminating | m}, idle: n % 3, waiting: n / 3 % 3, refs: n / 9 % 3, blind: n / 27,
						ring: bits&1 != 0, looked: bits&2 != 0, undiscovered: bits&8 != 0, waited: waited, still: waited,
					}
					o.blocking = o.idle + o.waiting + bits>>2&1
					checkFinish(t, o)
				}
			}
		}
	}
}

func checkFinish(t *testing.T, o ownerSight) {
	t.Helper()
	got := finish(o)
	orphans := o.owner.marks.has(orphaning)
	switch {
	case got.do == finalize && (orphans && (!o.looked || o.refs > 0) || o.blind > 0 || !orphans && o.blocking > 0):
		t.Fatalf("%+v is let go", o)
	case (got.do == finalize || got.do == list) && o.undiscovered:
		t.Fatalf("%+v is %s", o, got.do)
	case got.do == collect && orphans:
		t.Fatalf("dependents of %+v are removed", o)
	case got.do == orphan && !orphans:
		t.Fatalf("dependents of %+v are made orphans", o)
	case got.do == nothing:
		t.Fatalf("%+v is given up", o)
	case (got.do == hold || got.do == collect) && got.after <= 0:
		t.Fatalf("%+v waits for ever", o)
	}
}
