package controller

import "time"

// Back-off of requests that the API server refuses.
const (
	minRefusedBackoff = time.Second
	maxRefusedBackoff = time.Minute
)

// Backoff holds back one kind of request that is made for an object, such as the creates of an owner, after a refusal. It is apart from the queue, so events
// that wake the object neither bypass nor lengthen it, and all else that is done for the object goes on. A change of its spec ends it. Zero holds nothing back.
type Backoff struct {
	failures   int
	until      time.Time
	generation int64 // of the spec that was refused
}

// Refused notes one more sync whose requests were refused. progress means that some were not.
func (b Backoff) Refused(generation int64, progress bool, now time.Time) Backoff {
	if progress || b.generation != generation {
		b.failures = 0
	}
	delay := min(minRefusedBackoff<<min(b.failures, 16), maxRefusedBackoff)
	return Backoff{failures: b.failures + 1, until: now.Add(delay), generation: generation}
}

// Wait says how long requests are still held back; zero not at all.
func (b Backoff) Wait(generation int64, now time.Time) time.Duration {
	if b.generation != generation {
		return 0
	}
	return max(b.until.Sub(now), 0)
}
