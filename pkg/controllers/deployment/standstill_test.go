package deployment

import (
	"testing"
	"time"

	"minikcm/pkg/controller"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"
)

func TestRolledOut(t *testing.T) {
	all := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}
	with := func(edit func(*appsv1.DeploymentStatus)) appsv1.DeploymentStatus {
		s := *all.DeepCopy()
		edit(&s)
		return s
	}
	wasComplete := []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: reasonComplete}}
	for _, tt := range []struct {
		name           string
		status         appsv1.DeploymentStatus
		timed, forEver bool // with a deadline, and without
	}{
		{"all available", all, true, true},
		{"one no longer available, and it was complete", with(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas, s.Conditions = 2, wasComplete }), true, true},
		{"one not available, and it was never complete", with(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 2 }), false, true},
		{"one old", with(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 2 }), false, false},
		{"one too many", with(func(s *appsv1.DeploymentStatus) { s.Replicas = 4 }), false, false},
		{"another generation", with(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 }), false, false},
	} {
		d := newDeployment(3, deadline(600))
		d.Generation = 2
		if got := rolledOut(d, tt.status); got != tt.timed {
			t.Errorf("%s: with a deadline: %t, want %t", tt.name, got, tt.timed)
		}
		d.Spec.ProgressDeadlineSeconds = nil
		if got := rolledOut(d, tt.status); got != tt.forEver {
			t.Errorf("%s: without a deadline: %t, want %t", tt.name, got, tt.forEver)
		}
	}
}

func TestLongestStalledRollout(t *testing.T) {
	all := controller.NewKeyStates[cache.ObjectName](newState)
	slow, stuck := newDeployment(3), newDeployment(3, func(d *appsv1.Deployment) { d.Name, d.UID, d.Spec.MinReadySeconds = "stuck", "stuck", 60 })
	record := func(d *appsv1.Deployment, after time.Duration, finished, progressed bool) {
		key := cache.MetaObjectToName(d)
		all.For(key, d.UID).record(syncState{d: d, now: now.Add(after)}, finished, progressed)
	}
	for i := range 60 {
		record(slow, time.Duration(i)*time.Minute, false, true)
		record(stuck, time.Duration(i)*time.Minute, false, i < 10)
	}
	check := func(want time.Duration) {
		t.Helper()
		if stalled := longestStalled(all, now.Add(time.Hour)); stalled != want {
			t.Errorf("stalled for %v, want %v", stalled, want)
		}
	}
	check(50 * time.Minute)
	record(stuck, time.Hour, true, false)
	check(time.Minute)
	record(slow, time.Hour, true, false)
	check(0)
}
