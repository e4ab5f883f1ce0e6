package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/kubelet"
)

type look = func(context.Context) (seen string, done bool, err error)

func (s *stage) replicas(n int32) look {
	return func(ctx context.Context) (string, bool, error) {
		rs, err := s.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", false, err
		}
		st := rs.Status
		return fmt.Sprintf("%d ready, %d wanted", st.ReadyReplicas, *rs.Spec.Replicas),
			st.ObservedGeneration == rs.Generation && st.Replicas == n && st.ReadyReplicas == n, nil
	}
}

// endpoints waits until n endpoints of the Service are ready.
func (s *stage) endpoints(n int) look {
	return func(ctx context.Context) (string, bool, error) {
		list, err := s.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
		if err != nil {
			return "", false, err
		}
		var ready, others int
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if *e.Conditions.Ready {
					ready++
				} else {
					others++
				}
			}
		}
		return fmt.Sprintf("%d ready, %d not ready", ready, others), ready == n, nil
	}
}

func (s *stage) readyNodes(n int) look {
	return func(ctx context.Context) (string, bool, error) {
		list, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", false, err
		}
		ready := 0
		for _, node := range list.Items {
			if status, _ := readiness(node); status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
				ready++
			}
		}
		return fmt.Sprintf("%d of %d ready", ready, n), ready == n, nil
	}
}

func (s *stage) nodeIs(node string, want corev1.ConditionStatus) look {
	return func(ctx context.Context) (string, bool, error) {
		n, err := s.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return "", false, err
		}
		status, message := readiness(*n)
		var taints []string
		for _, t := range n.Spec.Taints {
			taints = append(taints, t.ToString())
		}
		seen := fmt.Sprintf("Ready=%s (%s), taints: %s", status, message, cmp.Or(strings.Join(taints, " "), "none"))
		return seen, status == want && (len(taints) == 0) == (want == corev1.ConditionTrue) && len(taints) != 1, nil
	}
}

// leaving waits until every pod of a node is being deleted.
func (s *stage) leaving(node string) look {
	return func(ctx context.Context) (string, bool, error) {
		list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			return "", false, err
		}
		ready, leaving := 0, 0
		for _, p := range list.Items {
			if kubelet.IsReady(&p) {
				ready++
			}
			if p.DeletionTimestamp != nil {
				leaving++
			}
		}
		return fmt.Sprintf("%d in all, %d still marked ready, %d being deleted", len(list.Items), ready, leaving), leaving == len(list.Items), nil
	}
}

// pods returns the ReplicaSet's pods that are not being deleted, by name.
func (s *stage) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods, nil
}

func (s *stage) show(ctx context.Context) error {
	pods, err := s.pods(ctx)
	for _, p := range pods {
		s.say("  %s", placement(&p))
	}
	return err
}

func placement(p *corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return p.Name + ", not scheduled yet"
	}
	return p.Name + " on " + p.Spec.NodeName
}

func readiness(n corev1.Node) (status corev1.ConditionStatus, message string) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status, c.Message
		}
	}
	return "", ""
}
