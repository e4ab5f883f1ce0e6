package main

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/test/controlplane"
)

func isNoExecute(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
}

func (j *judge) nodeHad(name string, at time.Time, had func(*corev1.Node) bool) bool {
	changes := j.histories.nodes.of(name)
	for i, c := range changes {
		over := i+1 < len(changes) && changes[i+1].at.Before(at.Add(-20*time.Second))
		if !over && c.at.Before(at.Add(time.Second)) && (c.deleted || had(c.object.(*corev1.Node))) {
			return true
		}
	}
	return len(changes) == 0
}

func (j *judge) nodeStood(name string, at time.Time) bool {
	changes := j.histories.nodes.of(name)
	if len(changes) == 0 || changes[0].at.After(at.Add(-20*time.Second)) {
		return false
	}
	return !j.nodeHad(name, at, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	})
}

func unreachable(n *corev1.Node) bool {
	return nodeReady(n) == corev1.ConditionUnknown || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnreachable
	})
}

func (j *judge) judgeMarks() {
	for _, k := range j.kubelets {
		marked := false
		for _, c := range j.histories.nodes.of(k.name) {
			n := c.object.(*corev1.Node)
			if unreachable(n) && !marked && !c.deleted {
				j.judgeMark(k, n, c)
			}
			marked = unreachable(n) && !c.deleted
		}
	}
	for _, e := range j.audit.Select(by("node-lifecycle-controller"), controlplane.ByResource("pods/status")) {
		key, at := e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, e.RequestReceivedTimestamp.Time
		if pod, ok := j.podAt(key, at); ok && pod.Spec.NodeName != "" && !j.nodeHad(pod.Spec.NodeName, at, func(n *corev1.Node) bool {
			return nodeReady(n) != corev1.ConditionTrue
		}) {
			j.violateAt(key, at, fmt.Sprintf("pod marked not ready on %s, which had been Ready for 20 s", pod.Spec.NodeName))
		}
	}
}

func (j *judge) judgeMark(k *nodeKubelet, n *corev1.Node, c change) {
	sign, told := k.silentBefore(c.at)
	if told || sign.IsZero() {
		return
	}
	silent := c.at.Sub(sign) - j.away.within(sign, c.at)
	if silent < nodeGrace-time.Second {
		j.violateAt(k.name, c.at, fmt.Sprintf("node marked unreachable (version %d) %v after its last sign of life", c.version, silent.Round(time.Millisecond)))
	}
}
