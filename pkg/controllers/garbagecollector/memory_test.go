package garbagecollector

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func TestRejectionsShareARate(t *testing.T) {
	all, now := rate.NewLimiter(rejectedPerSecond, rejectedBurst), began
	var last objectRecord
	for range 2000 {
		last = objectRecord{}.rejection(remove, "5", "no", all, now)
	}
	if got, least := last.backoff(remove, now), 1800/rejectedPerSecond*time.Second; got < least || got > least+2*time.Second {
		t.Errorf("the last of 2,000 rejected requests is sent again after %v, want about %v", got, least)
	}
}

func TestStandstillIsCountedFromTheLastChange(t *testing.T) {
	begin := time.Unix(1e9, 0)
	m := newTermState()
	for key, moved := range map[id]time.Time{object{uid: "a"}.key(): begin, object{uid: "b"}.key(): begin.Add(time.Minute), object{uid: "c"}.key(): {}} {
		m.owner(key, false, begin)
		m.updateOwner(key, func(known *ownerRecord) { known.cause, known.blockersChanged = causeFinalizers, moved })
	}
	if _, got := m.counts(begin.Add(time.Hour)); got != time.Hour {
		t.Errorf("longest standstill is %v, want 1h", got)
	}
	m.forgetOwner(object{uid: "a"}.key())
	if _, got := m.counts(begin.Add(time.Hour)); got != 59*time.Minute {
		t.Errorf("longest standstill without the first is %v, want 59m", got)
	}
	m.reset()
	if _, got := m.counts(begin.Add(time.Hour)); got != 0 {
		t.Errorf("longest standstill of none is %v", got)
	}
}
