// Package rv compares resource versions. The order of versions that are empty or not numbers is not known.
package rv

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Newer reports whether a is known to be newer than b.
func Newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// AtLeast reports whether a is known to be as new as b.
func AtLeast(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order >= 0
}

// MayBeNewer reports whether a is newer than b, or cannot be compared with it.
func MayBeNewer(a, b string) bool { return !AtLeast(b, a) }
