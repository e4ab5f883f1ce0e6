package garbagecollector

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// id is a UID in 16 bytes: a UUID, or the hash of any other text. Logs show keys as UUIDs.
type id = uuid.UUID

// idOf returns the id of a UID. It is exact if the UID can be restored from the id.
func idOf(uid types.UID) (of id, exact bool) {
	if len(uid) == 36 && !strings.ContainsAny(string(uid), "ABCDEF") { // API servers write UUIDs in lower case
		if of, err := uuid.Parse(string(uid)); err == nil {
			return of, true
		}
	}
	// Users choose the UIDs in references. The hash prevents a text with the id of another object.
	sum := sha256.Sum256([]byte(uid))
	copy(of[:], sum[:])
	return of, false
}

// objectType is a type in the graph.
type objectType struct {
	schema.GroupResource
	kind  string
	local bool // not served by an aggregated API server
}

// isKind reports whether the type has the kind of a reference. All versions of a group serve the same objects.
func (t objectType) isKind(k writtenKind) bool {
	gv, err := schema.ParseGroupVersion(k.apiVersion)
	return err == nil && gv.Version != "" && gv.Group == t.Group && (k.kind == t.kind || k.kind == strings.ToLower(t.kind))
}

// object is the metadata of an object, from the graph or from a live read.
type object struct {
	resource        schema.GroupResource
	namespace, name string // namespace is empty for cluster-scoped objects
	uid             types.UID
	version         string // empty if only a live read can show the version
	marks           marks
	refs            []reference // in written order

	live       bool      // from a live read
	readAt     time.Time // of the graph or of the live read; zero for objects of lists, which are no evidence
	finalizers []string  // of a live read
}

// reference is an owner reference as written.
type reference struct {
	apiVersion, kind, name string
	uid                    types.UID
	blocking               bool // blockOwnerDeletion
}

// marks are the properties of an object, besides references, that decisions depend on.
type marks uint8

const (
	terminating marks = 1 << iota // has a deletionTimestamp
	foreground                    // has the finalizer foregroundDeletion
	orphaning                     // has the finalizer orphan
)

func (m marks) has(all marks) bool { return m&all == all }

// waiting is upstream's waitingForDependentsDeletion. An owner with both finalizers of the collector orphans its
// dependents: a dependent that stays can still be deleted later.
func (m marks) waiting() bool { return m.has(terminating|foreground) && !m.has(orphaning) }

// finishing reports whether the object is in deletion and the collector has to remove a finalizer.
func (m marks) finishing() bool { return m.has(terminating) && m&(foreground|orphaning) != 0 }

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
		}
	}
	return of
}

// objectOf returns the object of a live read or list.
func objectOf(resource schema.GroupResource, m metav1.Object) object {
	return object{
		resource: resource, namespace: m.GetNamespace(), name: m.GetName(), uid: m.GetUID(), version: m.GetResourceVersion(),
		marks: marksOf(m), refs: refsOf(m), live: true, finalizers: m.GetFinalizers(),
	}
}

func refsOf(m metav1.Object) (all []reference) {
	for _, r := range m.GetOwnerReferences() {
		all = append(all, reference{apiVersion: r.APIVersion, kind: r.Kind, name: r.Name, uid: r.UID, blocking: blocking(r)})
	}
	return all
}

func blocking(ref metav1.OwnerReference) bool { return ptr.Deref(ref.BlockOwnerDeletion, false) }

// sameMetadata reports whether a decision about an object is valid for a later state of the object.
func (o object) sameMetadata(other object) bool {
	return o.uid == other.uid && o.marks == other.marks && slices.Equal(o.refs, other.refs)
}

// numberOf returns a resource version as a number. It returns 0 for other texts, which aggregated API servers may use.
func numberOf(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil || version[0] == '0' {
		return 0
	}
	return n
}

// key returns the key of an object in the graph.
func (o object) key() id {
	key, _ := idOf(o.uid)
	return key
}
