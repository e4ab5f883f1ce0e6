package caches

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/rv"
)

// owned is the store of a type whose objects may have controllers.
type owned[T metav1.Object] struct{ Store[T] }

// byController is the index by UID of the controller, or orphan/<namespace>.
const byController = "controller"

func controllerIndex(obj any) ([]string, error) {
	o := obj.(metav1.Object)
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return []string{"orphan/" + o.GetNamespace()}, nil
}

// ControlledBy returns the objects whose controller has that UID, terminating objects included.
func (o owned[T]) ControlledBy(uid types.UID) []T { return o.ByIndex(byController, string(uid)) }

// Claimable returns the objects that a controller may claim: orphans of the namespace, and objects whose
// controller has that UID. Orphans are read first, so an object that is adopted between the two reads is in
// the result.
func (o owned[T]) Claimable(namespace string, uid types.UID) []T {
	orphans := o.ByIndex(byController, "orphan/"+namespace)
	controlled := o.ControlledBy(uid)
	if len(orphans) == 0 {
		return controlled
	}
	adopted := make(map[types.UID]bool, len(controlled))
	for _, object := range controlled {
		adopted[object.GetUID()] = true
	}
	return append(controlled, slices.DeleteFunc(orphans, func(orphan T) bool { return adopted[orphan.GetUID()] })...)
}

// tally counts objects by a value. It follows the events of handlers and runs before all other handlers.
// Counting with an index of the store would copy the index.
type tally struct {
	lock   sync.Mutex
	counts map[string]int // no zeros
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (t *tally) countOf(value string) int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.counts[value]
}

// moveCount counts an object under a new instead of an old value. Empty values are not counted.
func (t *tally) moveCount(old, new string) {
	if old == new {
		return
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if new != "" {
		t.counts[new]++
	}
	if old == "" {
		return
	}
	if t.counts[old]--; t.counts[old] <= 0 {
		delete(t.counts, old)
	}
}

// highest holds the highest of some resource versions.
type highest struct {
	lock    sync.Mutex
	version string
}

// raiseTo ignores strings that are no versions.
func (h *highest) raiseTo(version string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	than := h.version
	if than == "" {
		than = version // the first version has to be comparable with itself
	}
	if rv.AtLeast(version, than) {
		h.version = version
	}
}

// get returns the highest version, or an empty string.
func (h *highest) get() string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.version
}
