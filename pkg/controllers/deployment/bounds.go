package deployment

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// bounds are what a Deployment asks for in numbers of pods. All are at least 0, unavailable is at most replicas.
type bounds struct {
	replicas    int
	surge       int // how many more there may be in a rolling update
	unavailable int // how many of the replicas may be missing
}

// most is the largest sum of sizes that a rolling update may lead to.
func (b bounds) maxTotal() int { return b.replicas + b.surge }

// least is how many pods are to be available.
func (b bounds) minAvailable() int { return b.replicas - b.unavailable }

// boundsOf resolves the percentages of a Deployment: surge is rounded up and unavailability down. Where both come to nothing one pod may be
// unavailable, or no rollout would ever move. What is missing or cannot be read is nothing.
func boundsOf(d *appsv1.Deployment) bounds {
	b := bounds{replicas: replicasOrOne(d.Spec.Replicas)}
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return b
	}
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		b.surge = resolveBound(r.MaxSurge, b.replicas, true)
		b.unavailable = resolveBound(r.MaxUnavailable, b.replicas, false)
	}
	if b.surge == 0 && b.unavailable == 0 {
		b.unavailable = 1
	}
	b.unavailable = min(b.unavailable, b.replicas)
	return b
}

// scaled is a number, or a percentage of replicas.
func resolveBound(value *intstr.IntOrString, replicas int, roundUp bool) int {
	if value == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, replicas, roundUp)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// orOne is the size that a spec asks for; nil is the API server's default.
func replicasOrOne(replicas *int32) int {
	if replicas == nil {
		return 1
	}
	return max(int(*replicas), 0)
}
