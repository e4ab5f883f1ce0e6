package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"minikcm/internal/rv"
)

const (
	// BarrierPatience is how long a key waits for the caches to show what this process wrote for it. After that it is read live, unless it has
	// been found behind for less than a BarrierRecheck.
	BarrierPatience = 30 * time.Second
	// BarrierRecheck bounds the wait for an event that may never come: that of an object created and removed between two lists.
	BarrierRecheck = time.Second
)

// Cache is the cache of one type, as barriers know it; every caches.Store is one.
type Cache interface {
	Resource() schema.GroupResource
	// Version is the resource version that the contents have reached; empty before the first list.
	Version() string
	// Expect tells who watches over the cache that it has to reach a version.
	Expect(version string)
}

// Version is a resource version of a type.
type Version struct {
	Resource schema.GroupResource
	Version  string
}

// Versions are at most one for each type.
type Versions []Version

// VersionsOf asks caches how far they have come. What is read from them afterwards is at least that new.
func VersionsOf(caches ...Cache) Versions {
	versions := make(Versions, len(caches))
	for i, c := range caches {
		versions[i] = Version{c.Resource(), c.Version()}
	}
	return versions
}

// Of is the version of a type; empty if there is none.
func (v Versions) Of(resource schema.GroupResource) string {
	for _, version := range v {
		if version.Resource == resource {
			return version.Version
		}
	}
	return ""
}

// Barrier keeps one key from being decided on caches that lack what this process wrote for it. Zero is a barrier that nothing was written
// behind. It is not safe for concurrent use: it belongs to the sync of its key.
//
//	at := VersionsOf(pods, replicaSets) // before anything is read
//	switch b.State(at, now) {
//	case Behind:  b.Wait(now); look again after BarrierRecheck
//	case Overdue: b.Wait(now); read live, and b.ReadLive(…) for each type
//	case Open:    b.Clear(now); decide on the caches
//	}
//	b.Require(pods, created.ResourceVersion, now) // after each write
type Barrier struct {
	required Versions  // the highest of each type that has been required
	since    time.Time // when the first of them was, or the sync that required it began
	waiting  time.Time // when the key was first held back; zero: it has not been
}

// BarrierState says what a sync may be decided on.
type BarrierState int

const (
	Open    BarrierState = iota // the caches: they show all that was required
	Behind                      // nothing yet: the caches will show it
	Overdue                     // a live read: the caches should show it by now, or nobody can tell whether they do
)

// Require holds the key back until the cache has reached version, which this process has written or read live; "" is ignored. It also tells the cache
// to expect that version, see Cache.Expect.
func (b *Barrier) Require(c Cache, version string, now time.Time) {
	if version == "" {
		return
	}
	c.Expect(version)
	if len(b.required) == 0 {
		b.since = now
	}
	for i := range b.required {
		if r := &b.required[i]; r.Resource == c.Resource() {
			r.Version = higher(r.Version, version)
			return
		}
	}
	b.required = append(b.required, Version{c.Resource(), version})
}

// State says whether caches that have come to at show what was required.
func (b *Barrier) State(at Versions, now time.Time) BarrierState {
	missing, err := b.missing(at)
	switch {
	case err == nil && len(missing) == 0:
		return Open
	case err != nil || now.Sub(b.since) >= BarrierPatience && b.lookedAgain(now):
		return Overdue
	}
	return Behind
}

// lookedAgain reports whether the key was found behind before, and not just now: the sync that wrote may have taken longer than patience itself.
func (b *Barrier) lookedAgain(now time.Time) bool {
	return !b.waiting.IsZero() && now.Sub(b.waiting) >= BarrierRecheck
}

// Missing names the types whose caches at these versions lack something. It names none if a version cannot be compared.
func (b *Barrier) Missing(at Versions) []schema.GroupResource {
	missing, _ := b.missing(at)
	return missing
}

func (b *Barrier) missing(at Versions) (resources []schema.GroupResource, err error) {
	for _, r := range b.required {
		order, err := resourceversion.CompareResourceVersion(r.Version, at.Of(r.Resource))
		if err != nil {
			return nil, err
		}
		if order > 0 {
			resources = append(resources, r.Resource)
		}
	}
	return resources, nil
}

// Unseen reports whether something was required that the caches have not been found to show.
func (b *Barrier) Unseen() bool { return len(b.required) > 0 }

// Wait notes that the key is held back.
func (b *Barrier) Wait(now time.Time) {
	if b.waiting.IsZero() {
		b.waiting = now
	}
}

// Clear notes that the caches show all that was required. It returns for how long the key was held back; zero if it was not.
func (b *Barrier) Clear(now time.Time) (waited time.Duration) {
	if !b.waiting.IsZero() {
		waited = now.Sub(b.waiting)
	}
	*b = Barrier{}
	return waited
}

// ReadLive notes that a type was read live, at a version, and that the key is decided on that. The caches get BarrierPatience anew. If the
// version is lower than the required one, the cluster was restored from a backup and the requirement is dropped. Require what the read showed next.
func (b *Barrier) ReadLive(c Cache, version string, now time.Time) {
	b.since, b.waiting = now, time.Time{}
	for i, r := range b.required {
		if r.Resource == c.Resource() && higher(version, r.Version) != version {
			b.required = append(b.required[:i], b.required[i+1:]...)
			return
		}
	}
}

// higher returns the higher of two versions. One that cannot be compared is kept: the barrier is overdue then.
func higher(a, b string) string {
	if a == "" {
		return b
	}
	if rv.Newer(b, a) {
		return b
	}
	return a
}
