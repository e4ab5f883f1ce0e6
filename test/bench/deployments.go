package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	rolledOut = "new template rolled out"
	conflicts = "conflicts of both loops in the rollout"

	rolloutDeployments, rolloutPods = 20, 50
)

func deploymentName(i int) string { return fmt.Sprintf("deployment-%d", i) }

func measureRollout(ctx context.Context, r *rig, c contestant) []reading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	must.Get(controlplane.StartKubelet(ctx, r.kube, benchNamespace))
	m := r.launchWorking(ctx, c)
	matches := []controlplane.AuditMatch{
		byLoop(deploymentController, replicaSetController), controlplane.ByCode(409),
		controlplane.ByResource("deployments", "deployments/status", "replicasets", "replicasets/status"),
	}
	up := r.measureEffort(m, func() time.Time {
		return r.awaitRollouts(ctx, func(ctx context.Context, i int) {
			r.create(ctx, controlplane.Deployment(benchNamespace, deploymentName(i), rolloutPods))
		})
	})
	must.Pause(ctx, 2*settleTime)
	before := len(r.requests(matches...))
	rollout := r.measureEffort(m, func() time.Time {
		return r.awaitRollouts(ctx, func(ctx context.Context, i int) {
			r.patch(ctx, controlplane.Deployment(benchNamespace, deploymentName(i), 0),
				`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"registry.example.com/shop/main:v2"}]}}}}`)
		})
	})
	must.Pause(ctx, 2*settleTime)
	clashes := len(r.requests(matches...)) - before
	return append(rollout.readings(rolledOut), reading{conflicts, "", float64(clashes)},
		reading{"20 Deployments of 50 pods up", "s", up.wall}, reading{"manager CPU, up", "s", up.manager})
}

// awaitRollouts changes every Deployment and waits until all are rolled out.
func (r *rig) awaitRollouts(ctx context.Context, change func(context.Context, int)) time.Time {
	must.ForEach(ctx, writers, rolloutDeployments, change)
	// The watch begins with the state after the last change.
	w := must.Get(r.client.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(benchNamespace)))
	defer w.Stop()
	done := map[string]bool{}
	return awaitEvent(ctx, w, func(e watch.Event) bool {
		if d, ok := e.Object.(*appsv1.Deployment); ok && isRolledOut(d) {
			done[d.Name] = true
		}
		return len(done) == rolloutDeployments
	})
}

func isRolledOut(d *appsv1.Deployment) bool {
	want, s := *d.Spec.Replicas, d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}
