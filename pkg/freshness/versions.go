package freshness

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// newer says whether resourceVersion a is newer than b. Versions that cannot be compared count as newer: then the later sight wins.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// older says whether resourceVersion a is older than b. Versions that cannot be compared are not.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

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
