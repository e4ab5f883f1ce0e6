package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/rv"
)

// Snapshot remembers which objects a consistent list of a key's objects contained. Until the cache has reached the version of that list, it tells which
// cached objects were gone by then. A Barrier cannot tell: what is gone has no version to require. The zero value is no snapshot. It is not safe for
// concurrent use: it belongs to the sync of its key.
type Snapshot struct {
	version string
	uids    map[types.UID]struct{} // nil: there is none
}

// SnapshotOf is a list of objects as of a version.
func SnapshotOf[T metav1.Object](objects []T, version string) Snapshot {
	s := Snapshot{version: version, uids: make(map[types.UID]struct{}, len(objects))}
	for _, object := range objects {
		s.uids[object.GetUID()] = struct{}{}
	}
	return s
}

// Taken reports whether there is a list.
func (s *Snapshot) Taken() bool { return s.uids != nil }

// Reached forgets the list if a cache at this version is as new.
func (s *Snapshot) Reached(version string) {
	if !s.Taken() {
		return
	}
	if !rv.Newer(s.version, version) {
		*s = Snapshot{}
	}
}

// Gone reports whether an object that the key selects was gone when the list was made: it is no newer than the list and not in it.
func (s *Snapshot) Gone(object metav1.Object) bool {
	if !s.Taken() {
		return false
	}
	if _, listed := s.uids[object.GetUID()]; listed {
		return false
	}
	return rv.AtLeast(s.version, object.GetResourceVersion())
}
