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

// shared holds one copy of values that are equal in many pods. Pods of one ReplicaSet have the same labels,
// owners and tolerations, and a map alone takes more memory than the rest of a cached pod.
type shared struct {
	fields      Fields
	seed        maphash.Seed
	labels      table[map[string]string]
	annotations table[map[string]string]
	owners      table[[]metav1.OwnerReference]
	tolerations table[[]corev1.Toleration]
	containers  table[[]corev1.Container]
}

// table holds the last value of each hash. Its size is fixed, so it needs no sweep: a value that loses its
// slot is stored twice.
type table[T any] struct {
	lock  sync.Mutex
	slots [1024]T
}

func (t *table[T]) shareValue(hash uint64, value T, equal func(a, b T) bool, copied func(T) T) T {
	t.lock.Lock()
	defer t.lock.Unlock()
	slot := &t.slots[hash%uint64(len(t.slots))]
	if !equal(*slot, value) {
		*slot = copied(value)
	}
	return *slot
}

func newShared(fields Fields) *shared { return &shared{fields: fields, seed: maphash.MakeSeed()} }

// uniqueString returns the copy of a string that the process keeps while the string is in use.
func uniqueString[S ~string](s S) S { return unique.Make(s).Value() }

func (s *shared) mapOf(t *table[map[string]string], in map[string]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	var hash uint64 // independent of the order
	for k, v := range in {
		hash += maphash.Comparable(s.seed, [2]string{k, v})
	}
	return t.shareValue(hash, in, maps.Equal, copyLabels)
}

func copyLabels(in map[string]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[uniqueString(k)] = uniqueString(v)
	}
	return out
}

func (s *shared) ownersOf(in []metav1.OwnerReference) []metav1.OwnerReference {
	if len(in) == 0 {
		return nil
	}
	return s.owners.shareValue(maphash.Comparable(s.seed, in[0].UID), in, sameOwners, copyOwners)
}

func copyOwners(in []metav1.OwnerReference) []metav1.OwnerReference {
	out := slices.Clone(in)
	for i := range out {
		o := &out[i]
		o.APIVersion, o.Kind, o.Name, o.UID = uniqueString(o.APIVersion), uniqueString(o.Kind), uniqueString(o.Name), uniqueString(o.UID)
	}
	return out
}

func (s *shared) tolerationsOf(in []corev1.Toleration) []corev1.Toleration {
	if len(in) == 0 {
		return nil
	}
	var hash uint64
	for _, t := range in {
		hash = hash*31 + uint64(ptr.Deref(t.TolerationSeconds, -1))
		t.TolerationSeconds = nil // hashed by value above
		hash = hash*31 + maphash.Comparable(s.seed, t)
	}
	return s.tolerations.shareValue(hash, in, SameTolerations, copyTolerations)
}

func copyTolerations(in []corev1.Toleration) []corev1.Toleration {
	out := make([]corev1.Toleration, len(in))
	for i := range in {
		t := in[i].DeepCopy()
		t.Key, t.Value, t.Operator, t.Effect = uniqueString(t.Key), uniqueString(t.Value), uniqueString(t.Operator), uniqueString(t.Effect)
		out[i] = *t
	}
	return out
}

func sameOwners(a, b []metav1.OwnerReference) bool {
	return slices.EqualFunc(a, b, func(a, b metav1.OwnerReference) bool {
		return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion &&
			ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
	})
}

// SameTolerations reports whether two lists hold equal tolerations in the same order.
func SameTolerations(a, b []corev1.Toleration) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Toleration) bool {
		seconds := ptr.Equal(a.TolerationSeconds, b.TolerationSeconds)
		a.TolerationSeconds, b.TolerationSeconds = nil, nil
		return seconds && a == b
	})
}

// containersOf returns one container with the named ports of a pod: first those of regular containers, then
// those of sidecars, as k8s.io/endpointslice looks names up.
func (s *shared) containersOf(pod *corev1.Pod) []corev1.Container {
	var ports []corev1.ContainerPort
	hash := uint64(0)
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.Name != "" {
				named := corev1.ContainerPort{Name: uniqueString(p.Name), ContainerPort: p.ContainerPort, Protocol: uniqueString(p.Protocol)}
				ports, hash = append(ports, named), hash*31+maphash.Comparable(s.seed, named)
			}
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; isSidecar(c) {
			add(c)
		}
	}
	if len(ports) == 0 {
		return nil
	}
	return s.containers.shareValue(hash, []corev1.Container{{Ports: ports}}, func(a, b []corev1.Container) bool {
		return len(a) == len(b) && slices.Equal(a[0].Ports, b[0].Ports)
	}, func(c []corev1.Container) []corev1.Container { return c })
}
