package controller

import "time"

// Back-off of creates that the API server refuses.
const (
	minCreateBackoff = time.Second
	maxCreateBackoff = time.Minute
)

// CreateBackoff holds back the creates of one owner after a refusal. It is apart from the queue, so events that wake the owner neither bypass
// nor lengthen it, and all else that is done for the owner goes on. A change of the spec ends it. Zero holds nothing back.
type CreateBackoff struct {
	failures   int
	until      time.Time
	generation int64 // of the spec that was refused
}

// Refused notes one more sync whose creates were refused. progress means that some were not.
func (b CreateBackoff) Refused(generation int64, progress bool, now time.Time) CreateBackoff {
	if progress || b.generation != generation {
		b.failures = 0
	}
	delay := min(minCreateBackoff<<min(b.failures, 16), maxCreateBackoff)
	return CreateBackoff{failures: b.failures + 1, until: now.Add(delay), generation: generation}
}

// Wait says how long creates are still held back; zero not at all.
func (b CreateBackoff) Wait(generation int64, now time.Time) time.Duration {
	if b.generation != generation {
		return 0
	}
	return max(b.until.Sub(now), 0)
}
