package deployment

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Annotations of upstream. kubectl reads them.
const (
	revisionAnnotation        = "deployment.kubernetes.io/revision"
	revisionHistoryAnnotation = "deployment.kubernetes.io/revision-history"
	desiredReplicasAnnotation = "deployment.kubernetes.io/desired-replicas" // at the last resize
	maxReplicasAnnotation     = "deployment.kubernetes.io/max-replicas"     // with the surge
)

// longestHistory bounds the value of revisionHistoryAnnotation, as in kube-controller-manager v1.37.
const longestHistory = 2000

// isReserved reports whether an annotation describes a single object, and is not copied from a Deployment to
// ReplicaSets.
func isReserved(key string) bool {
	switch key {
	case corev1.LastAppliedConfigAnnotation, appsv1.DeprecatedRollbackTo,
		revisionAnnotation, revisionHistoryAnnotation, desiredReplicasAnnotation, maxReplicasAnnotation:
		return true
	}
	return false
}

// revisionOf returns the revision in annotations, or 0 if it is not a positive number.
func revisionOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// sizeAnnotation returns the value of desiredReplicasAnnotation or maxReplicasAnnotation; ok is false if the value
// is negative or no int32.
func sizeAnnotation(rs *appsv1.ReplicaSet, key string) (n int, ok bool) {
	parsed, err := strconv.ParseUint(rs.Annotations[key], 10, 31)
	return int(parsed), err == nil
}

// sizeAnnotations returns the annotations that belong to the size of a ReplicaSet.
func sizeAnnotations(b bounds) map[string]string {
	return map[string]string{
		desiredReplicasAnnotation: strconv.Itoa(b.replicas),
		maxReplicasAnnotation:     strconv.Itoa(min(b.maxTotal(), math.MaxInt32)),
	}
}

// nextAnnotations returns the annotations of the new ReplicaSet besides sizeAnnotations: those of the Deployment,
// and a revision above those of all old ReplicaSets. has holds its present annotations.
func nextAnnotations(d *appsv1.Deployment, has map[string]string, old []replicaSet) map[string]string {
	want := map[string]string{}
	for key, value := range d.Annotations {
		if !isReserved(key) {
			want[key] = value
		}
	}
	own, due := revisionOf(has), int64(0)
	for _, s := range old {
		due = max(due, revisionOf(s.rs.Annotations))
	}
	if due < math.MaxInt64 {
		due++
	}
	if own >= due {
		return want
	}
	want[revisionAnnotation] = strconv.FormatInt(due, 10)
	if own > 0 {
		want[revisionHistoryAnnotation] = appendRevision(has[revisionHistoryAnnotation], own)
	}
	return want
}

// appendRevision adds a revision to a history. The oldest revisions are dropped if the history gets too long.
func appendRevision(history string, revision int64) string {
	history = strings.TrimPrefix(history+","+strconv.FormatInt(revision, 10), ",")
	for len(history) > longestHistory {
		_, history, _ = strings.Cut(history, ",")
	}
	return history
}

// missingFrom returns the entries of want that are absent or different in has, or nil.
func missingFrom(has, want map[string]string) map[string]string {
	missing := maps.Clone(want)
	maps.DeleteFunc(missing, func(key, value string) bool {
		got, ok := has[key]
		return ok && got == value
	})
	if len(missing) == 0 {
		return nil
	}
	return missing
}

// beyondHistory returns the empty old ReplicaSets beyond revisionHistoryLimit, lowest revision first. A surplus
// ReplicaSet with pods stays, and no other is deleted in its place.
func (in rolloutInput) beyondHistory() []*appsv1.ReplicaSet {
	limit := int(ptr.Deref(in.d.Spec.RevisionHistoryLimit, math.MaxInt32))
	kept := slices.DeleteFunc(slices.Clone(in.old), func(s replicaSet) bool { return s.rs.DeletionTimestamp != nil })
	slices.SortStableFunc(kept, func(a, b replicaSet) int {
		return cmp.Compare(revisionOf(a.rs.Annotations), revisionOf(b.rs.Annotations))
	})
	var surplus []*appsv1.ReplicaSet
	for _, s := range kept[:max(0, len(kept)-max(0, limit))] {
		if s.isEmpty() {
			surplus = append(surplus, s.rs)
		}
	}
	return surplus
}
