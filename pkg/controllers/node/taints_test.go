package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	noSchedule = corev1.TaintEffectNoSchedule
	noExec     = corev1.TaintEffectNoExecute
)

// parseTaints returns taints written as KEY:EFFECT, KEY:EFFECT@now or KEY:EFFECT@old, the key without the common
// prefix.
func parseTaints(text string) (taints []corev1.Taint) {
	effects := map[string]corev1.TaintEffect{"NS": noSchedule, "NE": noExec, "PNS": corev1.TaintEffectPreferNoSchedule}
	for _, word := range strings.Fields(text) {
		rest, added, _ := strings.Cut(word, "@")
		key, effect, _ := strings.Cut(rest, ":")
		taint := corev1.Taint{Key: "node.kubernetes.io/" + key, Effect: effects[effect]}
		switch added {
		case "now":
			taint.TimeAdded = &metav1.Time{Time: day}
		case "old":
			taint.TimeAdded = &metav1.Time{Time: day.Add(-time.Hour)}
		}
		taints = append(taints, taint)
	}
	return taints
}

func TestDesiredTaints(t *testing.T) {
	keep, none, unreachable := noExecute{keep: true}, noExecute{}, noExecute{key: corev1.TaintNodeUnreachable}
	for _, tt := range []struct {
		name, conditions, have, taints string
		want                           noExecute
	}{
		{"Ready", "Ready=True", "", "", none},
		{"not Ready", "Ready=False", "", "not-ready:NS@now", keep},
		{"Unknown", "Ready=Unknown", "", "unreachable:NS@now", keep},
		{"all pressures", "Ready=True NetworkUnavailable=True DiskPressure=True MemoryPressure=True PIDPressure=True", "",
			"memory-pressure:NS@now disk-pressure:NS@now pid-pressure:NS@now network-unavailable:NS@now", none},
		{"an Unknown pressure is no pressure", "Ready=Unknown DiskPressure=Unknown", "disk-pressure:NS@old", "unreachable:NS@now", keep},
		{"cordoned", "Ready=True unschedulable=True", "", "unschedulable:NS@now", none},
		{"a correct taint keeps its time and place", "Ready=False DiskPressure=True", "disk-pressure:NS@old user:NS",
			"disk-pressure:NS@old user:NS not-ready:NS@now", keep},
		{"the same key with another effect", "Ready=True", "not-ready:PNS", "not-ready:PNS", none},
		{"a key of ours that a user added", "Ready=True", "memory-pressure:NS user:NS", "user:NS", none},
		{"no condition: only NoExecute stays", "", "not-ready:NS@old not-ready:NE@old", "not-ready:NE@old", keep},
		{"NoExecute is added", "Ready=Unknown", "", "unreachable:NS@now unreachable:NE@now", unreachable},
		{"a swap keeps the time", "Ready=Unknown", "not-ready:NS@old not-ready:NE@old", "unreachable:NS@now unreachable:NE@old", unreachable},
		{"a swap of a taint without a time", "Ready=Unknown", "unreachable:NS@old not-ready:NE", "unreachable:NS@old unreachable:NE@now", unreachable},
		{"both NoExecute taints: one goes", "Ready=Unknown", "unreachable:NS@old unreachable:NE@old not-ready:NE@now",
			"unreachable:NS@old unreachable:NE@old", unreachable},
		{"recovered", "Ready=True", "unreachable:NS@old user:NS unreachable:NE@old out-of-service:NE@old", "user:NS out-of-service:NE@old", none},
		{"stopped: NoSchedule stays", "Ready=Unknown", "unreachable:NS@old unreachable:NE@old", "unreachable:NS@old", none},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: parseTaints(tt.have)}}
		for _, condition := range strings.Fields(tt.conditions) {
			kind, status, _ := strings.Cut(condition, "=")
			if node.Spec.Unschedulable = kind == "unschedulable"; !node.Spec.Unschedulable {
				node.Status.Conditions = append(node.Status.Conditions,
					corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status)})
			}
		}
		got, changed := desiredTaints(node, tt.want, metav1.NewTime(day))
		if diff := cmp.Diff(parseTaints(tt.taints), got); diff != "" || changed != (tt.taints != tt.have) {
			t.Errorf("%s: changed = %v; taints (-want +got):\n%s", tt.name, changed, diff)
		}
		node.Spec.Taints = got
		if _, again := desiredTaints(node, tt.want, metav1.NewTime(day.Add(time.Hour))); again {
			t.Errorf("%s: the desired taints are changed again", tt.name)
		}
	}
}

func TestMissingLabels(t *testing.T) {
	const os, arch, betaOS, betaArch = "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"
	type labels = map[string]string
	for _, tt := range []struct {
		name       string
		have, want labels
	}{
		{"no stable labels", labels{"topology.kubernetes.io/region": "r", betaOS: "windows"}, labels{}},
		{"beta labels missing", labels{os: "linux", arch: "amd64"}, labels{betaOS: "linux", betaArch: "amd64"}},
		{"beta labels different", labels{os: "linux", arch: "amd64", betaOS: "windows", betaArch: "arm"}, labels{betaOS: "linux", betaArch: "amd64"}},
		{"one of two equal", labels{os: "linux", arch: "amd64", betaOS: "linux"}, labels{betaArch: "amd64"}},
	} {
		if diff := cmp.Diff(tt.want, missingLabels(tt.have)); diff != "" {
			t.Errorf("%s: missing labels (-want +got):\n%s", tt.name, diff)
		}
	}
}
