package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noScheduleKeys are the keys of the NoSchedule taints that follow conditions, in the order of addition. The
// controller owns all NoSchedule taints with these keys.
var noScheduleKeys = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
	corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeUnschedulable,
}

// pressureKeys are the taint keys of conditions that cause a taint when True.
var pressureKeys = map[corev1.NodeConditionType]string{
	corev1.NodeMemoryPressure:     corev1.TaintNodeMemoryPressure,
	corev1.NodeDiskPressure:       corev1.TaintNodeDiskPressure,
	corev1.NodePIDPressure:        corev1.TaintNodePIDPressure,
	corev1.NodeNetworkUnavailable: corev1.TaintNodeNetworkUnavailable,
}

// noScheduleKeysFor returns the keys of the NoSchedule taints that follow from the conditions of a node.
func noScheduleKeysFor(node *corev1.Node) map[string]bool {
	wanted := map[string]bool{}
	if key := readyKeys[readiness(node)]; key != "" {
		wanted[key] = true
	}
	for _, c := range node.Status.Conditions {
		if key, ok := pressureKeys[c.Type]; ok && c.Status == corev1.ConditionTrue {
			wanted[key] = true
		}
	}
	if node.Spec.Unschedulable {
		wanted[corev1.TaintNodeUnschedulable] = true
	}
	return wanted
}

// readyKeys are the taint keys of the Ready statuses that cause a taint.
var readyKeys = map[corev1.ConditionStatus]string{
	corev1.ConditionFalse:   corev1.TaintNodeNotReady,
	corev1.ConditionUnknown: corev1.TaintNodeUnreachable,
}

// noExecute is the decision about the two NoExecute taints of a node.
type noExecute struct {
	keep bool   // leave both taints as they are; key is empty
	key  string // key of the wanted taint; empty for no taint
}

// noExecuteWanted decides about the NoExecute taints of a node. A node without a Ready condition keeps its
// taints. While tainting is stopped in all zones, no node keeps a taint.
func noExecuteWanted(ready corev1.ConditionStatus, stopped bool) noExecute {
	switch {
	case stopped:
		return noExecute{}
	case ready == "":
		return noExecute{keep: true}
	}
	return noExecute{key: readyKeys[ready]}
}

// followsReady reports whether a taint is one of the two NoExecute taints that follow Ready.
func followsReady(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// needsToken reports whether want adds a taint to a node without one of the two NoExecute taints.
func needsToken(taints []corev1.Taint, want noExecute) bool {
	return want.key != "" && !slices.ContainsFunc(taints, followsReady)
}

// desiredTaints returns the wanted taints of a node, and whether a taint changes. A remaining taint keeps its
// place, value and time. A NoExecute taint that replaces the other takes over its time.
func desiredTaints(node *corev1.Node, want noExecute, now metav1.Time) ([]corev1.Taint, bool) {
	wanted := noScheduleKeysFor(node)
	var taints []corev1.Taint
	since := &now
	has, changed := false, false
	for _, t := range node.Spec.Taints {
		if mustRemove(t, wanted, want) {
			if followsReady(t) && t.TimeAdded != nil {
				since = t.TimeAdded
			}
			changed = true
			continue
		}
		if t.Effect == corev1.TaintEffectNoSchedule {
			delete(wanted, t.Key)
		}
		has = has || followsReady(t) && t.Key == want.key
		taints = append(taints, t)
	}
	for _, key := range noScheduleKeys {
		if wanted[key] {
			taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now})
			changed = true
		}
	}
	if want.key == "" || has {
		return taints, changed
	}
	return append(taints, corev1.Taint{Key: want.key, Effect: corev1.TaintEffectNoExecute, TimeAdded: since}), true
}

// mustRemove reports whether a taint must be removed.
func mustRemove(t corev1.Taint, wanted map[string]bool, want noExecute) bool {
	if followsReady(t) {
		return !want.keep && t.Key != want.key
	}
	return t.Effect == corev1.TaintEffectNoSchedule && slices.Contains(noScheduleKeys, t.Key) && !wanted[t.Key]
}

// betaLabels maps old labels to the current labels with the same value.
var betaLabels = map[string]string{
	"beta.kubernetes.io/os":   corev1.LabelOSStable,
	"beta.kubernetes.io/arch": corev1.LabelArchStable,
}

// missingLabels returns the beta labels that are absent or differ from the stable labels.
func missingLabels(labels map[string]string) map[string]string {
	missing := map[string]string{}
	for beta, stable := range betaLabels {
		value, ok := labels[stable]
		if old, has := labels[beta]; ok && (!has || old != value) {
			missing[beta] = value
		}
	}
	return missing
}
