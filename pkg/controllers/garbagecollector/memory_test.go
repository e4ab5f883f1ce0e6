package garbagecollector

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func TestMemoryRestartsWithAnotherDeletion(t *testing.T) {
	m := newTermState()
	key := keyOf(uid(1))
	m.owner(key, false, began)
	if got := m.owner(key, false, began.Add(time.Minute)); !got.since.Equal(began) {
		t.Errorf("it has waited since %v, want %v", got.since, began)
	}
	if got := m.owner(key, true, began.Add(time.Minute)); !got.since.Equal(began.Add(time.Minute)) || !got.orphaning {
		t.Errorf("after the change it is %+v", got)
	}
	m.updateOwner(key, func(o *ownerRecord) { o.cause = causeUnlistedType })
	m.setObject(keyOf(uid(2)), objectRecord{cause: "refused"})
	if got, _ := m.counts(began); got[string(causeUnlistedType)] != 1 || got["refused"] != 1 {
		t.Errorf("counted are %v", got)
	}
	second := func(key id) bool { return key == keyOf(uid(2)) }
	m.prune(second, second, began)
	if got, _ := m.counts(began); len(got) != 1 || got["refused"] != 1 {
		t.Errorf("counted after one is gone are %v", got)
	}
}

func TestBackOffOutlastsDoubt(t *testing.T) {
	m := newTermState()
	key := keyOf(uid(1))
	nobody := func(id) bool { return false }
	m.setObject(key, objectRecord{}.rejection(remove, "5", "not now", rate.NewLimiter(1, 1), began))
	m.prune(nobody, nobody, began)
	if got := m.object(key).backoff(remove, began); got != minRejectedBackoff {
		t.Errorf("it may be sent again in %v, want %v", got, minRejectedBackoff)
	}
	if m.prune(nobody, nobody, began.Add(minRejectedBackoff)); len(m.objects) > 0 {
		t.Errorf("remembered are %v", m.objects)
	}
}

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
