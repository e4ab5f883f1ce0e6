package controller

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var b Backoff
	if got := b.Wait(0, now); got != 0 {
		t.Errorf("before any refusal creates wait %v", got)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		b = b.Refused(7, false, now)
		if got := b.Wait(7, now); got != want*time.Second {
			t.Errorf("after %d refusals creates wait %v, want %v", i+1, got, want*time.Second)
		}
	}
	for range 100 {
		b = b.Refused(7, false, now)
	}
	if got := b.Wait(7, now); got != time.Minute {
		t.Errorf("after very many refusals creates wait %v, want 1m", got)
	}
	if got := b.Wait(7, now.Add(time.Minute)); got != 0 {
		t.Errorf("a minute later creates wait %v", got)
	}
	if got := b.Wait(8, now); got != 0 {
		t.Errorf("for another spec creates wait %v", got)
	}
	if got := b.Refused(8, false, now).Wait(8, now); got != time.Second {
		t.Errorf("the first refusal of another spec makes creates wait %v, want 1s", got)
	}
	if got := b.Refused(7, true, now).Wait(7, now); got != time.Second {
		t.Errorf("after some progress creates wait %v, want 1s", got)
	}
}
