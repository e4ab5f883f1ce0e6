package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"minikcm/test/controlplane"
)

const (
	// rolling holds Deployments that only the user and managers change. Pods need no node and become ready at once, so
	// that only managers change the number of available pods.
	rolling = "rolling"
	// The last of rollingDeployments is scaled, too.
	rollingDeployments = 3
	rollingSurge       = 1
	rollingUnavailable = 1
	// templates are few, so that rollouts are turned round often.
	templates = 4
)

func (w *workload) createDeployments(ctx context.Context) error {
	for i := range rollingDeployments {
		d := controlplane.Deployment(rolling, fmt.Sprintf("rolling-%d", i), int32(3+w.draw.IntN(4)), func(d *appsv1.Deployment) {
			surge, unavailable := intstr.FromInt32(rollingSurge), intstr.FromInt32(rollingUnavailable)
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}
		})
		if _, err := w.client.AppsV1().Deployments(rolling).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make Deployment: %w", err)
		}
	}
	return nil
}

func (w *workload) someDeployment() (*appsv1.Deployment, bool) {
	return pick(current(w.histories.deployments, func(d *appsv1.Deployment) bool { return d.Namespace == rolling }), w.draw)
}

func (w *workload) rollOut(ctx context.Context) error {
	return w.patchDeployment(ctx, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, w.draw.IntN(templates)))
}

func (w *workload) pauseDeployment(ctx context.Context) error {
	return w.patchDeployment(ctx, fmt.Sprintf(`{"spec":{"paused":%t}}`, w.draw.IntN(3) == 0))
}

func (w *workload) scaleDeployment(ctx context.Context) error {
	return w.patch(ctx, rolling+"/"+fmt.Sprintf("rolling-%d", rollingDeployments-1), fmt.Sprintf(`{"spec":{"replicas":%d}}`, w.draw.IntN(8)))
}

func (w *workload) patchDeployment(ctx context.Context, patch string) error {
	d, ok := w.someDeployment()
	if !ok {
		return nil
	}
	return w.patch(ctx, keyOf(d), patch)
}

func (w *workload) patch(ctx context.Context, key, patch string) error {
	w.note(key, "patched with %s", patch)
	_, err := w.client.AppsV1().Deployments(rolling).Patch(ctx, key[len(rolling)+1:], types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// resumeDeployments ends every pause.
func (w *workload) resumeDeployments(ctx context.Context) error {
	for i := range rollingDeployments {
		if err := w.patch(ctx, fmt.Sprintf("%s/rolling-%d", rolling, i), `{"spec":{"paused":false}}`); err != nil {
			return err
		}
	}
	return nil
}
