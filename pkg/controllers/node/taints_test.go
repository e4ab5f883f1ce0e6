package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func taint(key string, effect corev1.TaintEffect, added time.Time) corev1.Taint {
	t := corev1.Taint{Key: key, Effect: effect}
	if !added.IsZero() {
		t.TimeAdded = &metav1.Time{Time: added}
	}
	return t
}

const (
	noSchedule = corev1.TaintEffectNoSchedule
	noExec     = corev1.TaintEffectNoExecute
)

func TestDesiredTaints(t *testing.T) {
	old := day.Add(-time.Hour)
	userNoSchedule := corev1.Taint{Key: "example.com/mine", Value: "v", Effect: noSchedule}
	userNotReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectPreferNoSchedule}
	keep := noExecute{keep: true}
	for _, tt := range []struct {
		name          string
		have          []corev1.Taint
		conditions    map[corev1.NodeConditionType]corev1.ConditionStatus
		unschedulable bool
		want          noExecute
		taints        []corev1.Taint
		changed       bool
	}{
		{name: "Ready", conditions: is("Ready", "True")},
		{
			name: "not Ready", conditions: is("Ready", "False"), want: keep,
			taints: []corev1.Taint{taint("node.kubernetes.io/not-ready", noSchedule, day)}, changed: true,
		},
		{
			name: "Unknown", conditions: is("Ready", "Unknown"), want: keep,
			taints: []corev1.Taint{taint("node.kubernetes.io/unreachable", noSchedule, day)}, changed: true,
		},
		{
			name: "all pressures", conditions: is("Ready", "True", "NetworkUnavailable", "True", "DiskPressure", "True", "MemoryPressure", "True", "PIDPressure", "True"),
			taints: []corev1.Taint{
				taint("node.kubernetes.io/memory-pressure", noSchedule, day), taint("node.kubernetes.io/disk-pressure", noSchedule, day),
				taint("node.kubernetes.io/pid-pressure", noSchedule, day), taint("node.kubernetes.io/network-unavailable", noSchedule, day),
			}, changed: true,
		},
		{
			name: "pressure that turned Unknown is no pressure", conditions: is("Ready", "Unknown", "DiskPressure", "Unknown"), want: keep,
			have:   []corev1.Taint{taint("node.kubernetes.io/disk-pressure", noSchedule, old)},
			taints: []corev1.Taint{taint("node.kubernetes.io/unreachable", noSchedule, day)}, changed: true,
		},
		{
			name: "cordoned", conditions: is("Ready", "True"), unschedulable: true,
			taints: []corev1.Taint{taint("node.kubernetes.io/unschedulable", noSchedule, day)}, changed: true,
		},
		{
			name: "a taint that is right keeps its time and place", conditions: is("Ready", "False", "DiskPressure", "True"), want: keep,
			have: []corev1.Taint{taint("node.kubernetes.io/disk-pressure", noSchedule, old), userNoSchedule},
			taints: []corev1.Taint{
				taint("node.kubernetes.io/disk-pressure", noSchedule, old), userNoSchedule, taint("node.kubernetes.io/not-ready", noSchedule, day),
			}, changed: true,
		},
		{
			name: "the same key with another effect is not ours", conditions: is("Ready", "True"),
			have: []corev1.Taint{userNotReady}, taints: []corev1.Taint{userNotReady},
		},
		{
			name: "what a user put with one of our keys goes", conditions: is("Ready", "True"),
			have: []corev1.Taint{taint("node.kubernetes.io/memory-pressure", noSchedule, time.Time{}), userNoSchedule}, taints: []corev1.Taint{userNoSchedule}, changed: true,
		},
		{
			name: "no condition: the taint of admission goes, the NoExecute one stays", want: keep,
			have:   []corev1.Taint{taint("node.kubernetes.io/not-ready", noSchedule, old), taint("node.kubernetes.io/not-ready", noExec, old)},
			taints: []corev1.Taint{taint("node.kubernetes.io/not-ready", noExec, old)}, changed: true,
		},
		{
			name: "NoExecute is given", conditions: is("Ready", "False"), want: noExecute{key: "node.kubernetes.io/not-ready"},
			taints:  []corev1.Taint{taint("node.kubernetes.io/not-ready", noSchedule, day), taint("node.kubernetes.io/not-ready", noExec, day)},
			changed: true,
		},
		{
			name: "a swap carries the time over", conditions: is("Ready", "Unknown"), want: noExecute{key: "node.kubernetes.io/unreachable"},
			have:    []corev1.Taint{taint("node.kubernetes.io/not-ready", noSchedule, old), taint("node.kubernetes.io/not-ready", noExec, old)},
			taints:  []corev1.Taint{taint("node.kubernetes.io/unreachable", noSchedule, day), taint("node.kubernetes.io/unreachable", noExec, old)},
			changed: true,
		},
		{
			name: "a swap of a taint without a time gives one", conditions: is("Ready", "Unknown"), want: noExecute{key: "node.kubernetes.io/unreachable"},
			have:    []corev1.Taint{taint("node.kubernetes.io/unreachable", noSchedule, old), taint("node.kubernetes.io/not-ready", noExec, time.Time{})},
			taints:  []corev1.Taint{taint("node.kubernetes.io/unreachable", noSchedule, old), taint("node.kubernetes.io/unreachable", noExec, day)},
			changed: true,
		},
		{
			name: "both there: the wrong one goes", conditions: is("Ready", "Unknown"), want: noExecute{key: "node.kubernetes.io/unreachable"},
			have: []corev1.Taint{
				taint("node.kubernetes.io/unreachable", noSchedule, old), taint("node.kubernetes.io/unreachable", noExec, old), taint("node.kubernetes.io/not-ready", noExec, day),
			},
			taints:  []corev1.Taint{taint("node.kubernetes.io/unreachable", noSchedule, old), taint("node.kubernetes.io/unreachable", noExec, old)},
			changed: true,
		},
		{
			name: "recovered: both effects go in one", conditions: is("Ready", "True"),
			have: []corev1.Taint{
				taint("node.kubernetes.io/unreachable", noSchedule, old), userNoSchedule, taint("node.kubernetes.io/unreachable", noExec, old),
				taint("node.kubernetes.io/out-of-service", noExec, old),
			},
			taints: []corev1.Taint{userNoSchedule, taint("node.kubernetes.io/out-of-service", noExec, old)}, changed: true,
		},
		{
			name: "stopped: NoExecute goes, NoSchedule stays", conditions: is("Ready", "Unknown"),
			have:   []corev1.Taint{taint("node.kubernetes.io/unreachable", noSchedule, old), taint("node.kubernetes.io/unreachable", noExec, old)},
			taints: []corev1.Taint{taint("node.kubernetes.io/unreachable", noSchedule, old)}, changed: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: tt.have, Unschedulable: tt.unschedulable}}
			for _, kind := range []corev1.NodeConditionType{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"} {
				if status, ok := tt.conditions[kind]; ok {
					node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
				}
			}
			got, changed := desiredTaints(node, tt.want, metav1.NewTime(day))
			if diff := cmp.Diff(tt.taints, got); diff != "" || changed != tt.changed {
				t.Errorf("changed = %v, want %v; taints (-want +got):\n%s", changed, tt.changed, diff)
			}
			node.Spec.Taints = got
			if _, again := desiredTaints(node, tt.want, metav1.NewTime(day.Add(time.Hour))); again {
				t.Error("what was desired is not desired a second time")
			}
		})
	}
}

// is makes conditions from pairs of type and status.
func is(pairs ...string) map[corev1.NodeConditionType]corev1.ConditionStatus {
	m := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for i := 0; i < len(pairs); i += 2 {
		m[corev1.NodeConditionType(pairs[i])] = corev1.ConditionStatus(pairs[i+1])
	}
	return m
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
