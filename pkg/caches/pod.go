package caches

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod holds the fields of a pod that controllers read. The metadata has name, namespace, UID,
// resourceVersion, generation, labels, owner references, finalizers, both timestamps and the deletion grace
// period; of the annotations only the deletion cost.
type Pod struct {
	metav1.ObjectMeta

	NodeName    string
	Phase       corev1.PodPhase
	Reason      string // status.reason, set by a kubelet
	Tolerations []corev1.Toleration

	Endpoint *Endpoint // only if [PodEndpoint] is requested

	Ready      Condition
	Scheduled  Condition // PodScheduled
	Disruption Condition // DisruptionTarget

	Restarts        int32 // maximum of the regular containers
	SidecarRestarts int32 // maximum of the restartable init containers
}

// Endpoint holds the fields of a pod that only EndpointSlices show.
type Endpoint struct {
	IPs        []corev1.PodIP
	Hostname   string
	Subdomain  string
	Containers []corev1.Container // one, with the named ports of all in the order of lookup; or none
}

// Condition is a pod condition without reason and message. An absent condition has an empty Status.
type Condition struct {
	Status corev1.ConditionStatus
	Since  metav1.Time // last transition
}

// IsActive reports whether the pod counts as a replica: neither finished nor being deleted.
func (p *Pod) IsActive() bool { return p.DeletionTimestamp == nil && !p.IsFinished() }

// IsFinished reports whether the phase is Succeeded or Failed.
func (p *Pod) IsFinished() bool { return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed }

// IsReady reports whether the condition Ready is True.
func (p *Pod) IsReady() bool { return p.Ready.Status == corev1.ConditionTrue }

// AvailableAt returns the time at which a ready pod has been ready for minReadySeconds.
func (p *Pod) AvailableAt(minReadySeconds int32) time.Time {
	return p.Ready.Since.Add(time.Duration(minReadySeconds) * time.Second)
}

// IsAvailable reports whether the pod has been ready for minReadySeconds. Without a transition time a pod is
// available only if minReadySeconds is 0.
func (p *Pod) IsAvailable(minReadySeconds int32, now time.Time) bool {
	return p.IsReady() && (minReadySeconds == 0 || !p.Ready.Since.IsZero() && !p.AvailableAt(minReadySeconds).After(now))
}

// ControllerUID returns the UID of the controller, or an empty string.
func (p *Pod) ControllerUID() types.UID {
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		return c.UID
	}
	return ""
}

// Reference returns the reference for events about the pod.
func (p *Pod) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
	}
}

// TrimPod returns a pod as stored in a cache.
func TrimPod(pod *corev1.Pod) *Pod { return trimPod(newShared(0), pod) }

func trimPod(share *shared, pod *corev1.Pod) *Pod {
	p := &Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:                       pod.Name,
			Namespace:                  uniqueString(pod.Namespace),
			UID:                        pod.UID,
			ResourceVersion:            pod.ResourceVersion,
			Generation:                 pod.Generation,
			CreationTimestamp:          pod.CreationTimestamp,
			DeletionTimestamp:          pod.DeletionTimestamp,
			DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
			Labels:                     share.mapOf(&share.labels, pod.Labels),
			OwnerReferences:            share.ownersOf(pod.OwnerReferences),
			Finalizers:                 pod.Finalizers,
		},
		NodeName:    uniqueString(pod.Spec.NodeName),
		Phase:       uniqueString(pod.Status.Phase),
		Reason:      uniqueString(pod.Status.Reason),
		Tolerations: share.tolerationsOf(pod.Spec.Tolerations),
	}
	if cost, ok := pod.Annotations[corev1.PodDeletionCost]; ok {
		p.Annotations = share.mapOf(&share.annotations, map[string]string{corev1.PodDeletionCost: cost})
	}
	for _, c := range pod.Status.Conditions {
		switch c.Type {
		case corev1.PodReady:
			p.Ready = trimCondition(&c)
		case corev1.PodScheduled:
			p.Scheduled = trimCondition(&c)
		case corev1.DisruptionTarget:
			p.Disruption = trimCondition(&c)
		}
	}
	p.Restarts, p.SidecarRestarts = restartCounts(pod)
	if share.fields&PodEndpoint != 0 {
		p.Endpoint = &Endpoint{
			IPs: pod.Status.PodIPs, Hostname: pod.Spec.Hostname, Subdomain: uniqueString(pod.Spec.Subdomain),
			Containers: share.containersOf(pod),
		}
	}
	return p
}

func trimCondition(c *corev1.PodCondition) Condition {
	return Condition{Status: uniqueString(c.Status), Since: c.LastTransitionTime}
}

func restartCounts(pod *corev1.Pod) (regular, sidecar int32) {
	for _, s := range pod.Status.ContainerStatuses {
		regular = max(regular, s.RestartCount)
	}
	for _, c := range pod.Spec.InitContainers {
		if !isSidecar(&c) {
			continue
		}
		for _, s := range pod.Status.InitContainerStatuses {
			if s.Name == c.Name {
				sidecar = max(sidecar, s.RestartCount)
			}
		}
	}
	return regular, sidecar
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
