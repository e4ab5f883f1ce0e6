package deployment

import (
	"maps"
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Annotations that kubectl and other controllers know, too.
const (
	revisionAnnotation        = "deployment.kubernetes.io/revision"         // of a ReplicaSet, and of the Deployment: that of its present template
	revisionHistoryAnnotation = "deployment.kubernetes.io/revision-history" // numbers that a ReplicaSet had before, separated by commas
	desiredReplicasAnnotation = "deployment.kubernetes.io/desired-replicas" // replicas of the Deployment when the ReplicaSet was last sized
	maxReplicasAnnotation     = "deployment.kubernetes.io/max-replicas"     // the same with the surge
)

// longestHistory bounds the value of revisionHistoryAnnotation, as in kube-controller-manager v1.37.
const longestHistory = 2000

// ours reports whether an annotation says something about one object, so that it is not copied from a Deployment to a ReplicaSet or back.
func isReserved(key string) bool {
	switch key {
	case corev1.LastAppliedConfigAnnotation, appsv1.DeprecatedRollbackTo,
		revisionAnnotation, revisionHistoryAnnotation, desiredReplicasAnnotation, maxReplicasAnnotation:
		return true
	}
	return false
}

// revisionOf is the revision that annotations tell; 0 if there is none, or one that is no positive number.
func revisionOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// highestRevision is 0 if there are no ReplicaSets.
func highestRevision(sets []replicaSet) (highest int64) {
	for _, s := range sets {
		highest = max(highest, revisionOf(s.rs.Annotations))
	}
	return highest
}

// sizeAnnotation reads the number that desiredReplicasAnnotation or maxReplicasAnnotation has; ok is false unless it is an int32 that is not negative.
func sizeAnnotation(rs *appsv1.ReplicaSet, key string) (n int, ok bool) {
	parsed, err := strconv.ParseUint(rs.Annotations[key], 10, 31)
	return int(parsed), err == nil
}

// sizeAnnotations are those that a ReplicaSet gets together with its size.
func sizeAnnotations(b bounds) map[string]string {
	return map[string]string{
		desiredReplicasAnnotation: strconv.Itoa(b.replicas),
		maxReplicasAnnotation:     strconv.Itoa(min(b.maxTotal(), math.MaxInt32)),
	}
}

// nextAnnotations are those that the ReplicaSet of the present template is to have besides sizeAnnotations: what users wrote on the Deployment,
// and a revision above those of all others. has is what it has now.
func nextAnnotations(d *appsv1.Deployment, has map[string]string, old []replicaSet) map[string]string {
	want := map[string]string{}
	for key, value := range d.Annotations {
		if !isReserved(key) {
			want[key] = value
		}
	}
	own, due := revisionOf(has), highestRevision(old)
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

// appendRevision adds a revision to the history of a ReplicaSet. The oldest ones go if it gets too long.
func appendRevision(history string, revision int64) string {
	history = strings.TrimPrefix(history+","+strconv.FormatInt(revision, 10), ",")
	for len(history) > longestHistory {
		_, history, _ = strings.Cut(history, ",")
	}
	return history
}

// missingFrom returns the entries of want that has lacks or has otherwise; nil if there are none.
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
