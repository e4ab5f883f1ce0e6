package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noScheduleKeys are the keys of the NoSchedule taints that follow conditions, in the order in which they are added. NoSchedule
// taints with these keys are ours whoever made them; all other taints are not.
var noScheduleKeys = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
	corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeUnschedulable,
}

// pressureKeys are the taints of conditions that are bad when True.
var pressureKeys = map[corev1.NodeConditionType]string{
	corev1.NodeMemoryPressure:     corev1.TaintNodeMemoryPressure,
	corev1.NodeDiskPressure:       corev1.TaintNodeDiskPressure,
	corev1.NodePIDPressure:        corev1.TaintNodePIDPressure,
	corev1.NodeNetworkUnavailable: corev1.TaintNodeNetworkUnavailable,
}

// noScheduleWanted returns the keys of the NoSchedule taints that a node's conditions ask for.
func noScheduleWanted(node *corev1.Node) map[string]bool {
	wanted := map[string]bool{}
	if key := readyKey(readiness(node)); key != "" {
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

// readyKey is the taint key of a Ready status, empty if it asks for none.
func readyKey(ready corev1.ConditionStatus) string {
	switch ready {
	case corev1.ConditionFalse:
		return corev1.TaintNodeNotReady
	case corev1.ConditionUnknown:
		return corev1.TaintNodeUnreachable
	}
	return ""
}

// noExecute is what should become of the two NoExecute taints of a node.
type noExecute struct {
	keep bool   // leave them as they are
	key  string // the one to have; empty: none
}

// noExecuteWanted decides about the NoExecute taints of a node. A node that never posted keeps what it has. While tainting is
// stopped for all, none may stay.
func noExecuteWanted(ready corev1.ConditionStatus, stopped bool) noExecute {
	switch {
	case ready == "" && !stopped:
		return noExecute{keep: true}
	case stopped:
		return noExecute{}
	}
	return noExecute{key: readyKey(ready)}
}

// isOurs reports whether a taint is one of the two NoExecute taints that follow Ready.
func isOurs(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// needsToken reports whether reaching want means that a node without a NoExecute taint of ours gets one.
func needsToken(taints []corev1.Taint, want noExecute) bool {
	return !want.keep && want.key != "" && !slices.ContainsFunc(taints, isOurs)
}

// desiredTaints returns a node's taints as they should be and whether they differ from what it has. A taint that stays keeps its
// place, value and time. When one NoExecute taint replaces the other it takes over its time: the bad period has not started anew.
func desiredTaints(node *corev1.Node, want noExecute, now metav1.Time) ([]corev1.Taint, bool) {
	wanted := noScheduleWanted(node)
	var taints []corev1.Taint
	since := &now
	has, changed := false, false
	for _, t := range node.Spec.Taints {
		if surplus(t, wanted, want) {
			if isOurs(t) && t.TimeAdded != nil {
				since = t.TimeAdded
			}
			changed = true
			continue
		}
		if t.Effect == corev1.TaintEffectNoSchedule {
			delete(wanted, t.Key)
		}
		has = has || isOurs(t) && t.Key == want.key
		taints = append(taints, t)
	}
	for _, key := range noScheduleKeys {
		if wanted[key] {
			taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now})
			changed = true
		}
	}
	if want.keep || want.key == "" || has {
		return taints, changed
	}
	return append(taints, corev1.Taint{Key: want.key, Effect: corev1.TaintEffectNoExecute, TimeAdded: since}), true
}

// surplus reports whether a taint is ours to remove.
func surplus(t corev1.Taint, wanted map[string]bool, want noExecute) bool {
	if isOurs(t) {
		return !want.keep && t.Key != want.key
	}
	return t.Effect == corev1.TaintEffectNoSchedule && slices.Contains(noScheduleKeys, t.Key) && !wanted[t.Key]
}

// betaLabels are the labels that follow another one, for those who still select by the old name.
var betaLabels = map[string]string{
	"beta.kubernetes.io/os":   corev1.LabelOSStable,
	"beta.kubernetes.io/arch": corev1.LabelArchStable,
}

// missingLabels returns the labels a node should have and has not, nil if none.
func missingLabels(labels map[string]string) map[string]string {
	var missing map[string]string
	for beta, stable := range betaLabels {
		value, ok := labels[stable]
		if old, has := labels[beta]; !ok || has && old == value {
			continue
		}
		if missing == nil {
			missing = map[string]string{}
		}
		missing[beta] = value
	}
	return missing
}
