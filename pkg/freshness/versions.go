package freshness

import (
	"math/rand/v2"
	"time"

)

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// between is a random part of d, so that replicas do not move in step.
func between(d time.Duration, low, high float64) time.Duration {
	return time.Duration(float64(d) * (low + rand.Float64()*(high-low)))
}
