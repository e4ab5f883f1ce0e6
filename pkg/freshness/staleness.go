package freshness

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/rv"
)

// freshness is how the cache of one type stands against what the API server has.
type freshness int

const (
	current   freshness = iota // it has reached every version that a list has had, or is equal to it
	behind                     // it has not reached the version of some list
	different                  // a comparison has shown what it lacks
	reopened                   // it lacks it still, and its watch was reopened
	stale                      // that did not help
)

// String is how logs and tests name it.
func (p freshness) String() string {
	return [...]string{"current", "behind", "different", "reopened", "stale"}[p]
}

// verdict says what to do about a watch.
type verdict string

const (
	fine     verdict = "fine"     // nothing is wrong
	patience verdict = "patience" // nothing can be said yet
	compare  verdict = "compare"  // find out what the cache lacks
	reopen   verdict = "reopen"   // end its watch, so that its reflector opens another
	declare  verdict = "declare"  // say that it is stale
)

// sight is what is known of one type at one moment.
type sight struct {
	behind   bool          // it has not reached the version of some list
	lacks    bool          // what the last comparison showed is still missing
	lasts    time.Duration // since the state began
	still    time.Duration // since the cache last moved, whatever bytes came
	compared time.Duration // since the last comparison
	listing  bool          // its reflector asks for everything anew, and gets answers
}

// next decides about one type. Being behind is normal until a bookmark comes. What has not moved for too long, or misses the same version for
// minutes although it moves, is compared, and only a difference that does not heal leads further. A cache that moves gets more time to
// heal; one that is being filled anew gets all it needs.
func (p freshness) next(s sight, cfg Config) (freshness, verdict) {
	heals := cfg.Settle
	if s.still < s.lasts {
		heals = cfg.Silence
	}
	switch {
	case !s.behind:
		return current, fine
	case p == current:
		return behind, patience
	case !s.lacks && (p == different || p == reopened):
		return behind, patience
	case s.listing:
		return p, patience
	case p == behind && s.lasts >= cfg.Settle && s.compared >= cfg.Interval && (s.still >= cfg.Silence || s.lasts >= cfg.Lag):
		return behind, compare
	case p == different && s.lasts >= heals:
		return reopened, reopen
	case p == reopened && s.lasts >= heals:
		return stale, declare
	case p == stale && s.compared >= cfg.Interval:
		return stale, compare
	}
	return p, patience
}

// finding is the outcome of a comparison.
type finding string

const (
	equal   finding = "equal"
	differs finding = "differs"
	unknown finding = "unknown" // there was no complete answer
)

// found is the state after a comparison.
func (p freshness) found(f finding) freshness {
	switch {
	case f == equal:
		return current
	case f == differs && p != stale:
		return different
	}
	return p
}

// unanswered is the state when lists are not answered: then watches do not deliver either, and what they have not shown is not held
// against them. Only what was found stale stays so until it is known to have it all.
func (p freshness) unanswered() freshness {
	if p == stale {
		return stale
	}
	return current
}

// canarySight is what is known of the watch of our Lease at one moment.
type canarySight struct {
	ahead    int           // versions of the Lease seen directly since the watch last delivered, or was reopened
	open     bool          // there is a watch, or one is being asked for
	silent   time.Duration // since its last byte
	reopened bool          // it was reopened because of this, and has delivered nothing since
}

// canaryLimit is how many renewals the watch may miss. One more, and it is silent.
const canaryLimit = 3

// judgeCanary decides about the watch of our Lease. While no watch is open the reflector is about to open
// one, or lists; while bytes come it is only late.
func judgeCanary(s canarySight, renewal time.Duration) verdict {
	switch {
	case s.ahead == 0 && !s.reopened:
		return fine
	case s.ahead <= canaryLimit || !s.open || s.silent < canaryLimit*renewal:
		return patience
	case !s.reopened:
		return reopen
	}
	return declare
}

// ObjectVersion identifies one state of one object.
type ObjectVersion struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

// key is what a cache is ordered by.
func (v ObjectVersion) key() types.NamespacedName {
	return types.NamespacedName{Namespace: v.Namespace, Name: v.Name}
}

// difference is what a cache has to become, by key: that state or a newer one; no UID: gone by that version.
type difference map[types.NamespacedName]ObjectVersion

// compareSets says what cached misses of a consistent list of the given version. What is newer in the cache
// than in the list is no difference.
func compareSets(listed []ObjectVersion, version string, cached []ObjectVersion) difference {
	have := make(map[types.NamespacedName]ObjectVersion, len(cached))
	for _, c := range cached {
		have[c.key()] = c
	}
	diff := difference{}
	for _, want := range listed {
		if got, ok := have[want.key()]; !ok || !reached(got, want) {
			diff[want.key()] = want
		}
		delete(have, want.key())
	}
	for key, extra := range have {
		if rv.AtLeast(version, extra.ResourceVersion) {
			diff[key] = gone(key, version)
		}
	}
	return diff
}

// gone is the state of an object that does not exist at a version.
func gone(key types.NamespacedName, version string) ObjectVersion {
	return ObjectVersion{Namespace: key.Namespace, Name: key.Name, ResourceVersion: version}
}

// reached says whether got is want or something newer.
func reached(got, want ObjectVersion) bool {
	return got.ResourceVersion == want.ResourceVersion || rv.MayBeNewer(got.ResourceVersion, want.ResourceVersion)
}

// unhealed is what of d cached still lacks.
func (d difference) unhealed(cached []ObjectVersion) difference {
	have := make(map[types.NamespacedName]ObjectVersion, len(d))
	for _, c := range cached {
		if _, ok := d[c.key()]; ok {
			have[c.key()] = c
		}
	}
	left := difference{}
	for key, want := range d {
		got, ok := have[key]
		lacks := !ok || !reached(got, want)
		if want.UID == "" { // there may be another of that name by now
			lacks = ok && rv.AtLeast(want.ResourceVersion, got.ResourceVersion)
		}
		if lacks {
			left[key] = want
		}
	}
	return left
}
