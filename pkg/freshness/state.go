package freshness

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/rv"
)

const (
	listInterval  = 30 * time.Second // between two consistent lists of a type
	silenceLimit  = 90 * time.Second // bookmarks come every 60 s while the monitor lists; see watchIdleTimeout
	lagLimit      = 3 * time.Minute  // a cache that changes may be behind the same version for so long
	settleTime    = 10 * time.Second // for a reopened watch to deliver, or a difference to heal
	equalInterval = 10 * time.Minute // between two whole lists of a type that was found equal after a short watch
	relistLimit   = 10 * time.Minute // for a new list of a reflector, and between two connections of a stale type
)

// cacheState is the state of the cache of one type.
type cacheState string

const (
	current  cacheState = "current"  // The cache has reached all known versions or equals a list, or lists fail.
	behind   cacheState = "behind"   // The cache has not reached a known version.
	reopened cacheState = "reopened" // The cache was behind for too long, and its watch was reopened.
	stale    cacheState = "stale"    // The reopened watch did not help, or is silent while lists are forbidden.
)

// observation is the input of a decision. Durations end now.
type observation struct {
	behind       bool
	missingFor   time.Duration // Since an expected version was first missed. Zero if no version is missed.
	maxSilence   time.Duration // see WatchedCache
	open         bool          // a watch is open, or requested
	silentFor    time.Duration // since the last byte
	listing      bool          // the reflector lists, with progress
	inState      time.Duration
	unchangedFor time.Duration // since the cache last changed
	comparedAgo  time.Duration // since the last comparison
	differs      bool          // a difference that the last comparison has shown still exists
}

// nextState returns the next state of a type, and whether the cache has to be compared with a list. Being
// behind is normal until the next bookmark. A reopened watch resumes where the cache is and needs no proof.
// Stepping down needs a proof: a difference that does not heal, or own renewals that no watch delivers.
func (s cacheState) nextState(o observation) (next cacheState, compare bool) {
	silentTooLong := o.maxSilence > 0 && o.open && min(o.missingFor, o.silentFor) >= o.maxSilence
	healTime := settleTime
	if o.unchangedFor < o.comparedAgo { // the cache changes, and may get there
		healTime = silenceLimit
	}
	switch {
	case !o.behind:
		return current, false
	case s == current:
		return behind, false
	case o.listing:
		return s, false
	case s == reopened && o.missingFor >= settleTime && o.missingFor < o.inState: // reopened for an older version
		return behind, false
	case s == behind && (silentTooLong || o.unchangedFor >= silenceLimit || o.inState >= lagLimit):
		return reopened, false
	case s == reopened && (silentTooLong && o.inState >= o.maxSilence || o.differs && o.comparedAgo >= healTime):
		return stale, false
	case s == reopened && !o.differs && (o.inState >= silenceLimit || o.inState >= settleTime && o.unchangedFor >= o.inState):
		return s, true
	case s == stale && o.comparedAgo >= listInterval:
		return s, true
	}
	return s, false
}

// ObjectVersions maps the name of each object of a type to its state.
type ObjectVersions map[types.NamespacedName]ObjectVersion

// ObjectVersion identifies one state of one object.
type ObjectVersion struct {
	UID             types.UID
	ResourceVersion string
}

// difference maps each differing key to its listed version. An empty UID means that the object was deleted
// by that version.
type difference ObjectVersions

// String describes a difference. It is empty if there is none.
func (d difference) String() string {
	for key := range d {
		return fmt.Sprintf("the cache differs from a list in %d objects, one is %s", len(d), key)
	}
	return ""
}

// differenceTo returns the objects of a consistent list that the cache lacks, and the objects of the cache
// that the list lacks. An object of the cache that is newer than the list is no difference.
func differenceTo(listed ObjectVersions, version string, cached ObjectVersions) difference {
	diff := make(difference, max(len(listed), len(cached)))
	for key := range cached {
		diff[key] = ObjectVersion{ResourceVersion: version}
	}
	maps.Copy(diff, listed)
	diff.removeHealed(cached)
	return diff
}

// removeHealed removes the part of d that the cache no longer lacks.
func (d difference) removeHealed(cached ObjectVersions) {
	maps.DeleteFunc(d, func(key types.NamespacedName, want ObjectVersion) bool {
		got, ok := cached[key]
		if want.UID == "" { // Another object may have the name by now.
			return !ok || !rv.AtLeast(want.ResourceVersion, got.ResourceVersion)
		}
		return ok && (got.ResourceVersion == want.ResourceVersion || rv.MayBeNewer(got.ResourceVersion, want.ResourceVersion))
	})
}
