package deployment

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
)

// TestSwitchInTheMiddleOfRollouts: from kube-controller-manager to ours and back while Deployments are rolled out. The templates and hashes are
// the same to both, so there is no ReplicaSet too many, and no pod of an unchanged Deployment is touched.
func TestSwitchInTheMiddleOfRollouts(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	const rolled, kept = 20, 4
	n := newNamespace(t)
	theirs := func(name string) *manager { return startEither(t, name, true, nil) }
	end := func(m *manager) {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	first := theirs("kube-controller-manager")
	all := map[string]*observer{}
	for i := range rolled + kept {
		name := fmt.Sprintf("web-%d", i)
		n.applyNamed(name, 4, rolling("1", "1"), rich)
	}
	for i := range rolled + kept {
		name := fmt.Sprintf("web-%d", i)
		n.completeNamed(name)
	}
	untouched := podsOf(n, rolled, kept)
	half := func(tag string) func(*corev1.Pod) bool { // every other new pod gets ready
		return func(p *corev1.Pod) bool { return !tagged(tag)(p) || p.UID[0]%2 == 0 }
	}
	n.kubelet.Ready(half("v2"))
	for i := range rolled {
		name := fmt.Sprintf("web-%d", i)
		all[name] = n.observe(n.named(name), 3, 5)
		n.editNamed(name, image("v2"))
	}
	n.setsOf(rolled, "v2")
	end(first)

	second := startEither(t, "ours", false, nil)
	for i := range rolled { // each second one another template, which ours makes a ReplicaSet for
		if i%2 == 1 {
			n.editNamed(fmt.Sprintf("web-%d", i), image("v3"))
		}
	}
	n.shown()
	end(second)

	theirs("kube-controller-manager again")
	n.shown()
	n.kubelet.Ready(controlplane.All)
	for i := range rolled {
		name := fmt.Sprintf("web-%d", i)
		all[name].complete()
		if want := 2 + i%2; all[name].seen() != want {
			t.Errorf("%s has had %d ReplicaSets, want %d", name, all[name].seen(), want)
		}
	}
	for uid, version := range podsOf(n, rolled, kept) {
		if untouched[uid] != version {
			t.Errorf("pod %s of a Deployment that nobody changed was touched", uid)
		}
	}
	for i := range kept {
		d := n.named(fmt.Sprintf("web-%d", rolled+i))
		if sets, err := n.sets(t.Context(), d); err != nil || len(sets) != 1 || d.Annotations[revisionKey] != "1" {
			t.Errorf("%s has ReplicaSets %v, %v", d.Name, names(sets), err)
		}
	}
}

// rich is a template with the types of fields whose spelling a hash might depend on.
func rich(d *appsv1.Deployment) {
	spec := &d.Spec.Template.Spec
	spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: quantity("512Mi")}}}}
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *quantity("0.5"), corev1.ResourceMemory: *quantity("1e3")}
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "CPU", ValueFrom: &corev1.EnvVarSource{
		ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: *quantity("1m")}}}}
	d.Spec.Template.Annotations = map[string]string{"b": "2", "a": "1"}
}

// podsOf are the pods of the Deployments that are kept, with their versions.
func podsOf(n *namespace, rolled, kept int) map[types.UID]string {
	versions := map[types.UID]string{}
	for _, pod := range n.pods() {
		for i := range kept {
			if pod.Labels["app"] == fmt.Sprintf("web-%d", rolled+i) {
				versions[pod.UID] = pod.ResourceVersion
			}
		}
	}
	return versions
}

func quantity(text string) *resource.Quantity { return new(resource.MustParse(text)) }

// setsOf waits until each of the first Deployments has a ReplicaSet with pods of the image.
func (n *namespace) setsOf(count int, tag string) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		for i := range count {
			sets, err := n.sets(ctx, n.named(fmt.Sprintf("web-%d", i)))
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(sets, func(s appsv1.ReplicaSet) bool {
				return imageOf(&s.Spec.Template) == "example.com/web:"+tag && *s.Spec.Replicas > 0
			}) {
				return fmt.Errorf("web-%d has ReplicaSets %v", i, names(sets))
			}
		}
		return nil
	})
}
