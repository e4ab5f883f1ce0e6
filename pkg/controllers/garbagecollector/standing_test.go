package garbagecollector

import (
	"testing"
	"time"
)

func TestStanding(t *testing.T) {
	happen := []occurrence{listed, heard, quiet, shown, notShown, lost}
	for from, row := range map[phase][]phase{
		//       listed   heard    quiet    shown    notShown lost
		listing: {current, listing, listing, listing, away, listing},
		current: {current, current, silent, current, away, listing},
		silent:  {current, current, silent, silent, away, listing},
		away:    {away, away, away, listing, away, away},
	} {
		for n, want := range row {
			now := began.Add(time.Minute)
			got := standing{from, began}.after(happen[n], now)
			if got.phase != want {
				t.Errorf("%s, %s: %s, want %s", from, happen[n], got.phase, want)
			}
			if changed := got.phase != from; changed != got.since.Equal(now) || !changed && !got.since.Equal(began) {
				t.Errorf("%s, %s: since %v", from, happen[n], got.since)
			}
		}
	}
}

func TestOnlyACurrentFeedIsAWitness(t *testing.T) {
	now := began.Add(time.Minute)
	for p, want := range map[phase][2]time.Duration{
		listing: {0, time.Minute}, current: {time.Minute, 0}, silent: {0, 0}, away: {0, 0},
	} {
		s := standing{p, began}
		if got := [2]time.Duration{s.heardFor(now), s.listingFor(now)}; got != want {
			t.Errorf("%s: heard and listing for %v, want %v", p, got, want)
		}
	}
	if got := (standing{listing, now}).listingFor(now); got <= 0 {
		t.Error("a feed that has just begun is not listing")
	}
}
