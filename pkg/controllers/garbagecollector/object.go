package garbagecollector

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// object is what decisions see of an object, whether the graph or a live read has shown it.
type object struct {
	resource        schema.GroupResource
	namespace, name string // namespace is empty for cluster-scoped objects
	uid             types.UID
	version         string // empty: only a live read can tell
	marks           marks
	refs            []reference // in the order in which they are written

	live *metav1.ObjectMeta // nil in what comes from the graph, which does not know all of it
	read time.Time          // when its references were seen to be these, at the latest; zero: just now
}

// reference is an owner reference as it is written.
type reference struct {
	apiVersion, kind, name string
	uid                    types.UID
	blocking               bool // blockOwnerDeletion
}

// marks are the facts about an object, besides its references, that decisions depend on.
type marks uint16

const (
	seen        marks = 1 << iota // its feed shows it; otherwise it is only referred to
	terminating                   // it has a deletionTimestamp
	foreground                    // it has the finalizer foregroundDeletion
	orphaning                     // it has the finalizer orphan
	held                          // it has other finalizers
	odd                           // its UID is no UUID
)

// facts are the marks that come from the object itself.
const facts = terminating | foreground | orphaning | held

func (m marks) has(all marks) bool { return m&all == all }

// waiting reports whether an owner waits for its dependents to go first. One that is to make orphans of them does not, whatever else it has: what
// stays can still be removed.
func (m marks) waiting() bool { return m.has(terminating|foreground) && !m.has(orphaning) }

// finishing reports whether the object is being deleted and we have to let it go.
func (m marks) finishing() bool { return m.has(terminating) && m&(foreground|orphaning) != 0 }

// marksOf reads off an object what decisions need.
func marksOf(m metav1.Object) marks {
	var of marks
	if m.GetDeletionTimestamp() != nil {
		of |= terminating
	}
	for _, finalizer := range m.GetFinalizers() {
		switch finalizer {
		case metav1.FinalizerDeleteDependents:
			of |= foreground
		case metav1.FinalizerOrphanDependents:
			of |= orphaning
		default:
			of |= held
		}
	}
	return of
}

// objectOf is what a live read has shown.
func objectOf(resource schema.GroupResource, m metav1.Object) object {
	o := object{
		resource: resource, namespace: m.GetNamespace(), name: m.GetName(), uid: m.GetUID(), version: m.GetResourceVersion(),
		marks: seen | marksOf(m), live: &metav1.ObjectMeta{
			CreationTimestamp: m.GetCreationTimestamp(), Finalizers: m.GetFinalizers(), OwnerReferences: m.GetOwnerReferences(),
		},
	}
	for _, ref := range m.GetOwnerReferences() {
		o.refs = append(o.refs, referenceOf(ref))
	}
	return o
}

func referenceOf(ref metav1.OwnerReference) reference {
	return reference{
		apiVersion: ref.APIVersion, kind: ref.Kind, name: ref.Name, uid: ref.UID, blocking: blocking(ref),
	}
}

func blocking(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}

// sameFor reports whether a decision about one object holds for the other: all that counts is as it was.
func (o object) sameFor(other object) bool {
	return o.uid == other.uid && o.marks&facts == other.marks&facts && slices.Equal(o.refs, other.refs)
}

// numberOf is a resource version as a number; 0 if it is none. The API server's own are numbers, those of others are their business.
func numberOf(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil || version[0] == '0' || version[0] == '+' {
		return 0
	}
	return n
}

func versionOf(number uint64) string {
	if number == 0 {
		return ""
	}
	return strconv.FormatUint(number, 10)
}

// keyed is the key of an object in the graph.
func keyed(o object) id {
	key, _ := idOf(o.uid)
	return key
}
