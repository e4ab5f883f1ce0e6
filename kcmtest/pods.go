package kcmtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"minikcm/internal/kubelet"
	"minikcm/pkg/controller"
	"minikcm/pkg/freshness"
	"minikcm/pkg/kubeclient"
)

// PodAnnotation changes the course of a pod under [PodsReady]. Without the annotation a pod becomes ready at once. The
// value is a comma-separated list of steps. A step is a state with an optional delay after the step before:
//
//	ready                      runs and is ready
//	running                    runs and does not become ready
//	pending                    is not started
//	failed                     has ended in phase Failed
//	succeeded                  has ended in phase Succeeded
//	gone after 2s              ends 2 s after the deletion
//	never gone                 does not end after the deletion
//
// For example "ready after 500ms, failed after 2s". A template can carry the annotation. A pod whose annotation changes
// starts again. An invalid annotation is reported in the status of the pod, which stays pending.
//
// Only a pod on a node takes time to end: the API server removes other pods at once.
const PodAnnotation = "kcmtest/pod"

// PodsReady simulates kubelets for all pods, including pods without a node: pods run and become ready, and deleted
// pods end. Pods wait for their schedulingGates and readinessGates. No container runs, and pods without a node
// have no address. [PodAnnotation] changes the course of a pod.
func PodsReady() Option {
	return func(s *settings) { s.podsReady = true }
}

func courseOf(pod *corev1.Pod) kubelet.Course {
	text, steered := pod.Annotations[PodAnnotation]
	if !steered {
		return kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Ready}}}
	}
	c, err := parseCourse(text)
	if err != nil {
		return kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Pending, Reason: kubelet.InvalidAnnotation, Message: err.Error()}}}
	}
	return c
}

// states are the states of the annotation.
var states = map[string]kubelet.State{
	"ready": kubelet.Ready, "running": kubelet.Running, "pending": kubelet.Pending, "failed": kubelet.Failed, "succeeded": kubelet.Succeeded,
}

func parseCourse(text string) (kubelet.Course, error) {
	var c kubelet.Course
	for item := range strings.SplitSeq(text, ",") {
		item = strings.Join(strings.Fields(item), " ")
		if item == "never gone" {
			c.GoneAfter = -1
			continue
		}
		what, delay, delayed := strings.Cut(item, " after ")
		var after time.Duration
		if delayed {
			var err error
			if after, err = time.ParseDuration(delay); err != nil || after < 0 {
				return c, fmt.Errorf("annotation %s: %q is no duration, such as 500ms or 2s", PodAnnotation, delay)
			}
		}
		state, known := states[what]
		switch {
		case what == "gone" && delayed:
			c.GoneAfter = after
		case known:
			c.Steps = append(c.Steps, kubelet.Step{State: state, After: after})
		default:
			return c, fmt.Errorf("annotation %s: %q is none of %s, gone after <duration>, never gone", PodAnnotation, item,
				strings.Join(slices.Sorted(maps.Keys(states)), ", "))
		}
	}
	if len(c.Steps) == 0 {
		c.Steps = []kubelet.Step{{State: kubelet.Ready}}
	}
	return c, nil
}

// kubeletPermissions are the permissions that kubelets need.
func kubeletPermissions() []controller.Access {
	const without = "pods do not become ready"
	return []controller.Access{
		{Resource: "pods", Verbs: []string{"list", "watch", "delete"}, Impact: without},
		{Resource: "pods/status", Verbs: []string{"patch"}, Impact: without},
	}
}

// newKubelets returns the simulated kubelets. The watch waits while the API server is away, as the watches of the
// controllers do.
func newKubelets(cfg *rest.Config) (*kubelet.Player, error) {
	cfg = kubeclient.WithAgent(cfg, "kubelets")
	cfg.QPS = -1
	cfg.WarningHandler = rest.NoWarnings{}
	transport := freshness.NewTransport(clock.RealClock{})
	cfg, held, err := transport.Client(cfg, false)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(cfg, held)
	if err != nil {
		return nil, fmt.Errorf("build the client of the kubelets: %w", err)
	}
	return kubelet.NewPlayer(client, corev1.NamespaceAll, courseOf)
}
