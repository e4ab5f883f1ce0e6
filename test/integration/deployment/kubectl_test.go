package deployment

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"minikcm/test/controlplane"
)

// testKubectlRollout runs the subcommands of kubectl rollout, which read only status, conditions and annotations.
func testKubectlRollout(t *testing.T, _ *manager) {
	n := newNamespace(t)
	program, err := controlplane.Binary("kubectl")
	controlplane.Must(t, err)
	flags := []string{"--kubeconfig=" + cluster.Kubeconfig(t, "operator", "system:masters"), "--namespace=" + n.name}
	kubectl := func(exitCode int, want string, args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), program, append(slices.Clone(flags), args...)...)
		out, _ := command.CombinedOutput()
		t.Logf("$ kubectl %s\n%s", strings.Join(args, " "), out)
		if got := command.ProcessState.ExitCode(); !strings.Contains(string(out), want) || got != exitCode {
			t.Fatalf("kubectl %s ends with exit code %d, want %q and %d", strings.Join(args, " "), got, want, exitCode)
		}
	}
	status := []string{"rollout", "status", "deployment/web", "--timeout=4m"}
	d := n.apply(3, rolling("1", "1"), func(d *appsv1.Deployment) { d.Annotations = map[string]string{causeKey: "the first"} })
	kubectl(0, "successfully rolled out", status...)

	kubectl(0, "image updated", "set", "image", "deployment/web", "main=example.com/web:v2")
	kubectl(0, "annotated", "annotate", "deployment/web", causeKey+"=the second", "--overwrite")
	kubectl(0, "successfully rolled out", status...)
	n.eventually(n.causes(d, map[int]string{1: "the first", 2: "the second"}))
	kubectl(0, "1         the first\n2         the second", "rollout", "history", "deployment/web")
	kubectl(0, "example.com/web:v1", "rollout", "history", "deployment/web", "--revision=1")

	kubectl(0, "rolled back", "rollout", "undo", "deployment/web")
	kubectl(0, "successfully rolled out", status...)
	n.eventually(n.causes(d, map[int]string{2: "the second", 3: "the first"}))
	kubectl(0, "2         the second\n3         the first", "rollout", "history", "deployment/web")
	kubectl(0, "rolled back", "rollout", "undo", "deployment/web", "--to-revision=2")
	kubectl(0, "successfully rolled out", status...)
	if _, s := n.complete(); imageOf(&s.Spec.Template) != "example.com/web:v2" || s.Annotations[revisionKey] != "4" {
		t.Errorf("after the undo the ReplicaSet is of %s at revision %s", imageOf(&s.Spec.Template), s.Annotations[revisionKey])
	}

	kubectl(0, "paused", "rollout", "pause", "deployment/web")
	kubectl(0, "image updated", "set", "image", "deployment/web", "main=example.com/web:v3")
	n.observed()
	if sets, err := n.sets(t.Context(), d); err != nil || len(sets) != 2 {
		t.Errorf("paused, there are %d ReplicaSets, error %v", len(sets), err)
	}
	kubectl(1, "cannot rollback a paused deployment", "rollout", "undo", "deployment/web")
	kubectl(0, "resumed", "rollout", "resume", "deployment/web")
	kubectl(0, "successfully rolled out", status...)

	before := map[string]bool{}
	for _, pod := range n.pods() {
		before[pod.Name] = true
	}
	kubectl(0, "restarted", "rollout", "restart", "deployment/web")
	kubectl(0, "successfully rolled out", status...)
	for _, pod := range n.pods() {
		if pod.DeletionTimestamp == nil && before[pod.Name] {
			t.Errorf("pod %s has lived through the restart", pod.Name)
		}
	}

	n.kubelet.Ready(func(p *corev1.Pod) bool { return !tagged("broken")(p) })
	n.edit(deadline(2), image("broken"))
	kubectl(1, "exceeded its progress deadline", status...)
	n.edit(deadline(600))
	kubectl(0, "rolled back", "rollout", "undo", "deployment/web")
	kubectl(0, "successfully rolled out", status...)
	kubectl(0, "scaled", "scale", "deployment/web", "--replicas=1")
	kubectl(0, "successfully rolled out", status...)
	n.complete() // kubectl reports success in spite of surplus pods
	kubectl(0, "1/1", "get", "deployment/web")
}

const causeKey = "kubernetes.io/change-cause"

func (n *namespace) causes(d *appsv1.Deployment, want map[int]string) func(context.Context) error {
	return func(ctx context.Context) error {
		sets, err := n.sets(ctx, d)
		got := map[int]string{}
		for i := range sets {
			got[revision(&sets[i])] = sets[i].Annotations[causeKey]
		}
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("causes are %v, want %v", got, want)
		}
		return err
	}
}
