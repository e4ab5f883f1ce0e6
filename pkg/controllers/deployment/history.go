package deployment

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// history returns the old ReplicaSets that are more than the Deployment keeps. Those with the lowest revisions go; one that still has pods stays, and
// no other goes in its place.
func (p pass) beyondHistory() []*appsv1.ReplicaSet {
	limit := p.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(p.old), func(s replicaSet) bool { return s.rs.DeletionTimestamp != nil })
	slices.SortStableFunc(kept, func(a, b replicaSet) int {
		return cmp.Compare(revisionOf(a.rs.Annotations), revisionOf(b.rs.Annotations))
	})
	var surplus []*appsv1.ReplicaSet
	for _, s := range kept[:max(0, len(kept)-max(0, int(*limit)))] {
		if s.isEmpty() {
			surplus = append(surplus, s.rs)
		}
	}
	return surplus
}
