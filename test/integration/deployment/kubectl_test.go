package deployment

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"minikcm/test/controlplane"
)

// testKubectlRollout runs the subcommands of kubectl rollout, which read only status, conditions and annotations.
func testKubectlRollout(t *testing.T, _ *manager) {
	n := newNamespace(t)
	k := newKubectl(n)
	d := n.apply(3, rolling("1", "1"), func(d *appsv1.Deployment) { d.Annotations = map[string]string{causeKey: "the first"} })
	k.says("successfully rolled out", "rollout", "status", "deployment/web", "--timeout=4m")

	k.says("image updated", "set", "image", "deployment/web", "main=example.com/web:v2")
	k.says("annotated", "annotate", "deployment/web", causeKey+"=the second", "--overwrite")
	k.says("successfully rolled out", "rollout", "status", "deployment/web", "--timeout=4m")
	n.eventually(n.causes(d, map[int]string{1: "the first", 2: "the second"}))
	k.says("1         the first\n2         the second", "rollout", "history", "deployment/web")
	k.says("example.com/web:v1", "rollout", "history", "deployment/web", "--revision=1")

	k.says("rolled back", "rollout", "undo", "deployment/web")
	k.says("successfully rolled out", "rollout", "status", "deployment/web", "--timeout=4m")
	n.eventually(n.causes(d, map[int]string{2: "the second", 3: "the first"}))
	k.says("2         the second\n3         the first", "rollout", "history", "deployment/web")
	k.says("rolled back", "rollout", "undo", "deployment/web", "--to-revision=2")
	k.says("successfully rolled out", "rollout", "status", "deployment/web", "--timeout=4m")
	if _, s := n.complete(); imageOf(&s.Spec.Template) != "example.com/web:v2" || s.Annotations[revisionKey] != "4" {
		t.Errorf("after the undo the ReplicaSet is of %s at revision %s", imageOf(&s.Spec.Template), s.Annotations[revisionKey])
	}

	k.says("paused", "rollout", "pause", "deployment/web")
	k.says("image updated", "set", "image", "deployment/web", "main=example.com/web:v3")
	n.observed()
	if sets, err := n.sets(t.Context(), d); err != nil || len(sets) != 2 {
		t.Errorf("paused, there are %d ReplicaSets, error %v", len(sets), err)
	}
	k.fails("cannot rollback a paused deployment", "rollout", "undo", "deployment/web")
	k.says("resumed", "rollout", "resume", "deployment/web")
	k.says("successfully rolled out", "rollout", "status", "deployment/web", "--timeout=4m")

	before := map[string]bool{}
	for _, pod := range n.pods() {
		before[pod.Name] = true
	}
	k.says("restarted", "rollout", "restart", "deployment/web")
	k.says("successfully rolled out", "rollout", "status", "deployment/web", "--timeout=4m")
	for _, pod := range n.pods() {
		if pod.DeletionTimestamp == nil && before[pod.Name] {
			t.Errorf("pod %s has lived through the restart", pod.Name)
		}
	}

	n.kubelet.Ready(func(p *corev1.Pod) bool { return !tagged("broken")(p) })
	n.edit(deadline(2), image("broken"))
	k.fails("exceeded its progress deadline", "rollout", "status", "deployment/web", "--timeout=4m")
	n.edit(deadline(600))
	k.says("rolled back", "rollout", "undo", "deployment/web")
	k.says("successfully rolled out", "rollout", "status", "deployment/web", "--timeout=4m")
	k.says("scaled", "scale", "deployment/web", "--replicas=1")
	k.says("successfully rolled out", "rollout", "status", "deployment/web", "--timeout=4m")
	n.complete() // kubectl reports success in spite of surplus pods
	k.says("1/1", "get", "deployment/web")
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

type kubectl struct {
	n                   *namespace
	program, kubeconfig string
}

func newKubectl(n *namespace) *kubectl {
	n.t.Helper()
	program, err := controlplane.Binary("kubectl")
	if err != nil {
		n.t.Fatal(err)
	}
	return &kubectl{n, program, cluster.Kubeconfig(n.t, "operator", "system:masters")}
}

func (k *kubectl) run(fails bool, want string, args []string) {
	k.n.t.Helper()
	out, err := exec.CommandContext(k.n.t.Context(), k.program, append([]string{"--kubeconfig=" + k.kubeconfig, "--namespace=" + k.n.name}, args...)...).CombinedOutput()
	k.n.t.Logf("$ kubectl %s\n%s", strings.Join(args, " "), out)
	if !strings.Contains(string(out), want) || (err != nil) != fails {
		k.n.t.Fatalf("kubectl %s: %v, want %q and failure %t", strings.Join(args, " "), err, want, fails)
	}
}

func (k *kubectl) says(want string, args ...string) {
	k.n.t.Helper()
	k.run(false, want, args)
}

func (k *kubectl) fails(want string, args ...string) {
	k.n.t.Helper()
	k.run(true, want, args)
}
