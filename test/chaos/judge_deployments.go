package main

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type account struct {
	key       string
	specs     []int32
	at        []time.Time
	sizes     map[types.UID]int32
	templates map[types.UID]*corev1.PodTemplateSpec
	available map[types.UID]bool // pods
}

func (a *account) wanted(since time.Time) (least, most int32) {
	least, most = 1<<30, 0
	for i := range a.specs {
		if i+1 < len(a.at) && a.at[i+1].Before(since) {
			continue
		}
		least, most = min(least, a.specs[i]), max(most, a.specs[i])
	}
	return least, most
}

// judgeRollouts replays the history of Deployments, ReplicaSets and pods in the order of versions. No raise may exceed
// replicas and surge, no template may get two ReplicaSets, and no removed pod may leave fewer available pods than
// promised.
func (j *judge) judgeRollouts() {
	accounts := map[types.UID]*account{}
	owners := map[types.UID]types.UID{} // ReplicaSet → Deployment
	var all []change
	for _, h := range []*history{j.histories.deployments, j.histories.replicaSets, j.histories.pods} {
		all = append(all, h.all()...)
	}
	slices.SortStableFunc(all, func(a, b change) int { return int(a.version - b.version) })
	for _, c := range all {
		if c.object.GetNamespace() != rolling {
			continue
		}
		switch o := c.object.(type) {
		case *appsv1.Deployment:
			a := accounts[o.UID]
			if a == nil {
				a = &account{key: keyOf(o), sizes: map[types.UID]int32{}, templates: map[types.UID]*corev1.PodTemplateSpec{}, available: map[types.UID]bool{}}
				accounts[o.UID] = a
			}
			if n := len(a.specs); n == 0 || a.specs[n-1] != *o.Spec.Replicas {
				a.specs, a.at = append(a.specs, *o.Spec.Replicas), append(a.at, c.at)
			}
		case *appsv1.ReplicaSet:
			if ref := metav1.GetControllerOf(o); ref != nil && accounts[ref.UID] != nil {
				owners[o.UID] = ref.UID
				j.judgeSize(accounts[ref.UID], o, c)
			}
		case *corev1.Pod:
			if ref := setOf(o); ref != nil && accounts[owners[ref.UID]] != nil {
				j.judgeAvailable(accounts[owners[ref.UID]], o, c)
			}
		}
	}
}

func (j *judge) judgeSize(a *account, rs *appsv1.ReplicaSet, c change) {
	if c.deleted {
		delete(a.sizes, rs.UID)
		delete(a.templates, rs.UID)
		return
	}
	before, known := a.sizes[rs.UID]
	a.sizes[rs.UID] = *rs.Spec.Replicas
	sum := int32(0)
	for _, size := range a.sizes {
		sum += size
	}
	if _, most := a.wanted(c.at.Add(-recently)); *rs.Spec.Replicas > before && sum > most+rollingSurge {
		j.violateAt(a.key, c.at, fmt.Sprintf("ReplicaSet %s was raised to %d (version %d): sizes add up to %d, at most %d replicas were asked for since %v before",
			rs.Name, *rs.Spec.Replicas, c.version, sum, most, recently))
	}
	if known {
		return
	}
	template := rs.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	for _, other := range a.templates {
		if equality.Semantic.DeepEqual(other, template) {
			j.violateAt(a.key, c.at, fmt.Sprintf("ReplicaSet %s (version %d) is another one of its template", rs.Name, c.version))
		}
	}
	a.templates[rs.UID] = template
}

func (j *judge) judgeAvailable(a *account, pod *corev1.Pod, c change) {
	was := a.available[pod.UID]
	is := !c.deleted && active(pod) && ready(pod.Status.Conditions)
	if is {
		a.available[pod.UID] = true
		return
	}
	delete(a.available, pod.UID)
	least, _ := a.wanted(c.at.Add(-recently))
	if was && int32(len(a.available)) < least-rollingUnavailable {
		j.violateAt(a.key, c.at, fmt.Sprintf("pod %s was taken (version %d): %d are available, at least %d replicas were asked for since %v before",
			pod.Name, c.version, len(a.available), least, recently))
	}
}

func judgeDeployment(d *appsv1.Deployment, all []appsv1.ReplicaSet) []violation {
	var wrong []violation
	complain := func(format string, args ...any) {
		wrong = append(wrong, violation{keyOf(d), fmt.Sprintf(format, args...)})
	}
	want, s := *d.Spec.Replicas, d.Status
	if s.ObservedGeneration != d.Generation || s.Replicas != want || s.UpdatedReplicas != want || s.ReadyReplicas != want || s.AvailableReplicas != want || s.UnavailableReplicas != 0 {
		complain("status of %d replicas at generation %d is %+v", want, d.Generation, s)
	}
	for _, c := range s.Conditions {
		if c.Status != corev1.ConditionTrue || c.Type == appsv1.DeploymentProgressing && c.Reason != "NewReplicaSetAvailable" {
			complain("condition %s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	present := 0
	for i := range all {
		rs := &all[i]
		if !metav1.IsControlledBy(rs, d) {
			continue
		}
		template, size := rs.Spec.Template.DeepCopy(), int32(0)
		delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		if equality.Semantic.DeepEqual(*template, d.Spec.Template) {
			present, size = present+1, want
		}
		if *rs.Spec.Replicas != size {
			complain("ReplicaSet %s asks for %d pods, want %d", rs.Name, *rs.Spec.Replicas, size)
		}
	}
	if present != 1 {
		complain("%d ReplicaSets are of its template, want one", present)
	}
	return wrong
}
