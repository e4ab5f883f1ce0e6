package caches

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// shareSlots is how many different values of a kind the table can lend at a time. It is a fixed number so that the table never
// needs sweeping: a value that loses its slot is merely stored twice.
const shareSlots = 1024

// shared lends one copy of equal values to many objects. Pods come in families: those of one ReplicaSet have the same labels,
// the same owner and the same tolerations, and a map alone takes more room than the rest of a cached pod.
type shared struct {
	seed        maphash.Seed
	lock        sync.Mutex
	labels      [shareSlots]map[string]string
	annotations [shareSlots]map[string]string
	owners      [shareSlots][]metav1.OwnerReference
	tolerations [shareSlots][]corev1.Toleration
}

func newShared() *shared { return &shared{seed: maphash.MakeSeed()} }

// canonical returns the one copy of a string that the process keeps for as long as somebody uses it.
func canonical[S ~string](s S) S { return unique.Make(s).Value() }

func (s *shared) mapOf(table *[shareSlots]map[string]string, in map[string]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	var sum uint64 // order must not matter
	for k, v := range in {
		sum += maphash.Comparable(s.seed, [2]string{k, v})
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	slot := &table[sum%shareSlots]
	if !maps.Equal(*slot, in) {
		*slot = copyLabels(in)
	}
	return *slot
}

func copyLabels(in map[string]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[canonical(k)] = canonical(v)
	}
	return out
}

func (s *shared) ownersOf(in []metav1.OwnerReference) []metav1.OwnerReference {
	if len(in) == 0 {
		return nil
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	slot := &s.owners[maphash.Comparable(s.seed, in[0].UID)%shareSlots]
	if !slices.EqualFunc(*slot, in, sameOwner) {
		*slot = copyOwners(in)
	}
	return *slot
}

func copyOwners(in []metav1.OwnerReference) []metav1.OwnerReference {
	out := make([]metav1.OwnerReference, len(in))
	for i, o := range in {
		out[i] = metav1.OwnerReference{
			APIVersion: canonical(o.APIVersion), Kind: canonical(o.Kind), Name: canonical(o.Name), UID: canonical(o.UID),
			Controller: o.Controller, BlockOwnerDeletion: o.BlockOwnerDeletion,
		}
	}
	return out
}

func (s *shared) tolerationsOf(in []corev1.Toleration) []corev1.Toleration {
	if len(in) == 0 {
		return nil
	}
	var sum uint64
	for _, t := range in {
		seconds := t.TolerationSeconds
		t.TolerationSeconds = nil // a pointer is not its value
		sum = sum*31 + maphash.Comparable(s.seed, t)
		if seconds != nil {
			sum += uint64(*seconds)
		}
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	slot := &s.tolerations[sum%shareSlots]
	if !SameTolerations(*slot, in) {
		*slot = copyTolerations(in)
	}
	return *slot
}

func copyTolerations(in []corev1.Toleration) []corev1.Toleration {
	out := make([]corev1.Toleration, len(in))
	for i := range in {
		t := in[i].DeepCopy()
		t.Key, t.Value, t.Operator, t.Effect = canonical(t.Key), canonical(t.Value), canonical(t.Operator), canonical(t.Effect)
		out[i] = *t
	}
	return out
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion &&
		ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// SameTolerations reports whether two pods tolerate the same, written in the same order.
func SameTolerations(a, b []corev1.Toleration) bool { return slices.EqualFunc(a, b, sameToleration) }

func sameToleration(a, b corev1.Toleration) bool {
	seconds := ptr.Equal(a.TolerationSeconds, b.TolerationSeconds)
	a.TolerationSeconds, b.TolerationSeconds = nil, nil
	return seconds && a == b
}
