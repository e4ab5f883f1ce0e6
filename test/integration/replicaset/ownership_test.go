package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
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

// adoption is four pods and the ReplicaSets they may belong to, made while no controller runs.
type adoption struct {
	namespaces []*namespace
	sets       []*appsv1.ReplicaSet
	others     []*appsv1.ReplicaSet
}

var adoptionCases = []struct {
	name   string
	others int32 // pods wanted by another ReplicaSet with the same selector; 0: there is none with that selector
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
	// Make room, so that adopting it is all that has to happen.
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
	n.settled("rs") // one too many was adopted, one was deleted
	if second[0] == name {
		t.Errorf("pod %s was not replaced while it was loose", name)
	}
}

func testAdoptionKeepsOtherOwners(t *testing.T) {
	n := newNamespace(t)
	rs := n.apply(1)
	n.settled("rs")
	name := n.active(rs)[0]
	foreign := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "11111111-2222-3333-4444-555555555555", Controller: new(bool)}
	for _, tt := range []struct {
		before metav1.OwnerReference
		want   int
	}{{foreign, 2}, {refTo(rs, false), 1}} {
		n.editPod(name, func(pod *corev1.Pod) { pod.OwnerReferences = []metav1.OwnerReference{tt.before} })
		n.eventually(func(ctx context.Context) error {
			pod, err := n.client.CoreV1().Pods(n.name).Get(ctx, name, metav1.GetOptions{})
			if err == nil && (!metav1.IsControlledBy(pod, rs) || len(pod.OwnerReferences) != tt.want) {
				err = fmt.Errorf("owners are %v, want %d with us as controller", show(pod.OwnerReferences), tt.want)
			}
			return err
		})
	}
	n.settled("rs")
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

// testRefusedAdoption: a pod that the API server does not let us adopt keeps the ReplicaSet neither from scaling nor from reporting.
func testRefusedAdoption(t *testing.T) {
	n := newNamespace(t)
	forbidOwners(t, n, "stubborn")
	n.create(controlplane.Pod(n.name, "stubborn", map[string]string{"app": "rs"}))
	rs := n.apply(2)
	n.settled("rs")
	if got := n.active(rs); len(got) != 2 || slices.Contains(got, "stubborn") {
		t.Errorf("active pods are %v", got)
	}
	n.eventually(func(ctx context.Context) error {
		refused, err := n.events(ctx, "FailedAdopt")
		if err == nil && len(refused) != 1 {
			err = fmt.Errorf("events are %v", refused)
		}
		return err
	})
}

// forbidOwners makes the API server refuse to give an owner to pods of a name, and waits until it does.
func forbidOwners(t *testing.T, n *namespace, pod string) {
	t.Helper()
	api := n.client.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: n.name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("object.metadata.namespace != '%s' || object.metadata.name != '%s' || !has(object.metadata.ownerReferences)", n.name, pod),
			}},
		},
	}
	if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: n.name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: n.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), n.name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(context.Background(), n.name, metav1.DeleteOptions{})
	})
	probe := controlplane.Pod(n.name, pod, nil, ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}))
	n.eventually(func(ctx context.Context) error {
		_, err := n.client.CoreV1().Pods(n.name).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the policy is not in effect")
		}
		return nil
	})
}
