package replicaset

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

func ownedBy(refs ...metav1.OwnerReference) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.OwnerReferences = refs }
}

func refTo(rs *appsv1.ReplicaSet, controller bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: &controller}
}

type adoption struct {
	namespaces []*namespace
	sets       []*appsv1.ReplicaSet
	others     []*appsv1.ReplicaSet
}

var adoptionCases = []struct {
	name   string
	others int32
	refs   func(rs, other *appsv1.ReplicaSet) []metav1.OwnerReference
	want   func(rs, other *appsv1.ReplicaSet) []metav1.OwnerReference
}{
	{
		"OwnerThatIsNoController", 0,
		func(rs, _ *appsv1.ReplicaSet) []metav1.OwnerReference {
			return []metav1.OwnerReference{refTo(rs, false)}
		},
		func(rs, _ *appsv1.ReplicaSet) []metav1.OwnerReference { return []metav1.OwnerReference{blocking(rs)} },
	},
	{
		"NoOwner", 0,
		func(_, _ *appsv1.ReplicaSet) []metav1.OwnerReference { return nil },
		func(rs, _ *appsv1.ReplicaSet) []metav1.OwnerReference { return []metav1.OwnerReference{blocking(rs)} },
	},
	{
		"AlreadyOurs", 0,
		func(rs, _ *appsv1.ReplicaSet) []metav1.OwnerReference {
			return []metav1.OwnerReference{refTo(rs, true)}
		},
		func(rs, _ *appsv1.ReplicaSet) []metav1.OwnerReference {
			return []metav1.OwnerReference{refTo(rs, true)}
		},
	},
	{
		"ControlledByAnother", 1,
		func(rs, other *appsv1.ReplicaSet) []metav1.OwnerReference {
			return []metav1.OwnerReference{refTo(other, true), refTo(rs, false)}
		},
		func(rs, other *appsv1.ReplicaSet) []metav1.OwnerReference {
			return []metav1.OwnerReference{refTo(other, true), refTo(rs, false)}
		},
	},
}

// blocking is the reference that an adoption leaves.
func blocking(rs *appsv1.ReplicaSet) metav1.OwnerReference {
	ref := refTo(rs, true)
	ref.BlockOwnerDeletion = new(true)
	return ref
}

func prepareAdoption(t *testing.T) *adoption {
	a := &adoption{}
	for _, tt := range adoptionCases {
		n := newNamespace(t)
		rs := n.apply(1)
		other := n.applyNamed("other", tt.others, func(other *appsv1.ReplicaSet) {
			if tt.others > 0 {
				other.Spec.Selector, other.Spec.Template.Labels = rs.Spec.Selector, rs.Spec.Template.Labels
			}
		})
		n.create(controlplane.Pod(n.name, "pod", map[string]string{"app": "rs"}, ownedBy(tt.refs(rs, other)...)))
		a.namespaces, a.sets, a.others = append(a.namespaces, n), append(a.sets, rs), append(a.others, other)
	}
	return a
}

func (a *adoption) check(t *testing.T) {
	for i, tt := range adoptionCases {
		n, rs := a.namespaces[i], a.sets[i]
		t.Run(tt.name, func(t *testing.T) {
			n := &namespace{t: t, name: n.name, client: n.client}
			n.settled("rs")
			if got, want := len(n.pods()), 1+int(tt.others); got != want {
				t.Errorf("%d pods, want %d", got, want)
			}
			pod, err := n.client.CoreV1().Pods(n.name).Get(t.Context(), "pod", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want(rs, a.others[i])
			if got := pod.OwnerReferences; fmt.Sprint(show(got)) != fmt.Sprint(show(want)) {
				t.Errorf("owner references are %v, want %v", show(got), show(want))
			}
		})
	}
}

func show(refs []metav1.OwnerReference) []string {
	var out []string
	for _, r := range refs {
		out = append(out, fmt.Sprintf("%s/%s/%s controller=%t block=%t", r.Kind, r.Name, r.UID,
			r.Controller != nil && *r.Controller, r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion))
	}
	return out
}

func testReleaseAndReadopt(t *testing.T) {
	n := newNamespace(t)
	rs := n.apply(1)
	n.settled("rs")
	name := n.active(rs)[0]
	n.editPod(name, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "loose"} })
	n.eventually(func(ctx context.Context) error {
		pod, err := n.client.CoreV1().Pods(n.name).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(pod.OwnerReferences) > 0 {
			err = fmt.Errorf("owners are %v", show(pod.OwnerReferences))
		}
		return err
	})
	n.settled("rs") // with a new pod
	second := n.active(rs)
	n.scale("rs", 2)
	n.settled("rs")
	n.scale("rs", 3)
	n.settled("rs")
	n.editPod(name, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "rs"} })
	n.eventually(func(ctx context.Context) error {
		adopted, err := n.events(ctx, "SuccessfulAdopt")
		if err == nil && len(adopted) != 1 {
			err = fmt.Errorf("events are %v", adopted)
		}
		return err
	})
	n.settled("rs")
	if second[0] == name {
		t.Errorf("pod %s was not replaced while it was loose", name)
	}
}

func testExtraPods(t *testing.T) {
	n := newNamespace(t)
	for i := range 3 {
		n.create(controlplane.Pod(n.name, fmt.Sprintf("pod-%d", i), map[string]string{"app": "rs"}))
	}
	n.shown()
	rs := n.apply(2)
	n.settled("rs")
	n.eventually(func(context.Context) error {
		if got := n.pods("app=rs"); len(got) != 2 || len(n.active(rs)) != 2 {
			return fmt.Errorf("pods are %s", podNames(got))
		}
		return nil
	})
	for _, pod := range n.pods("app=rs") {
		if pod.GenerateName != "" {
			t.Errorf("pod %s was created though there were enough to adopt", pod.Name)
		}
	}
}
