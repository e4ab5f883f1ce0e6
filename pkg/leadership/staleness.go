package leadership

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// verdict says what to do about a watch.
type verdict string

const (
	fine     verdict = "fine"     // it has reached all there is to reach, or moves
	patience verdict = "patience" // nothing can be said yet
	reopen   verdict = "reopen"
	compare  verdict = "compare" // with a whole list
	stale    verdict = "stale"
)

// sight is what is known of one type at one moment.
type sight struct {
	behind   time.Duration // how long the store has missed the version of some list; 0: it has them all
	silent   time.Duration // since the last byte of its watch
	reopened time.Duration // since its watch was reopened because of this; 0: it was not
	moved    bool          // the store has moved since
	stale    bool          // it was found stale: then only having it all is good enough
}

// judge decides about a type. A store behind a list is normal until a bookmark comes; only silence beyond
// that is suspect, and only a store that does not move after a reopening is worth the price of a whole list.
func judge(s sight, cfg LivenessConfig) verdict {
	switch {
	case s.behind == 0 || s.reopened > 0 && s.moved && !s.stale:
		return fine
	case s.reopened == 0 && s.silent >= cfg.Silence:
		return reopen
	case s.reopened > 0 && s.reopened >= cfg.Settle:
		return compare
	}
	return patience
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
// one; while bytes come it is only late.
func judgeCanary(s canarySight, renewal time.Duration) verdict {
	switch {
	case s.ahead == 0 && !s.reopened:
		return fine
	case s.ahead <= canaryLimit || !s.open || s.silent < canaryLimit*renewal:
		return patience
	case !s.reopened:
		return reopen
	}
	return stale
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

// difference is what a cache has to become, by key: that state or a newer one; no UID: gone.
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
		if !newer(extra.ResourceVersion, version) {
			diff[key] = ObjectVersion{Namespace: key.Namespace, Name: key.Name}
		}
	}
	return diff
}

// reached says whether got is want or something newer.
func reached(got, want ObjectVersion) bool {
	return got.ResourceVersion == want.ResourceVersion || newer(got.ResourceVersion, want.ResourceVersion)
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
		if want.UID == "" && ok || want.UID != "" && (!ok || !reached(got, want)) {
			left[key] = want
		}
	}
	return left
}
