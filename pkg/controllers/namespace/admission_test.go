package namespace

import (
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestMayHoldUp(t *testing.T) {
	rule := func(op admissionv1.OperationType, scope *admissionv1.ScopeType) []admissionv1.RuleWithOperations {
		return []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{op}, Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods"}, Scope: scope}}}
	}
	injected := &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}}
	for _, tt := range []struct {
		name string
		hook admissionHook
		want bool
	}{
		{"creates", admissionHook{rule(admissionv1.Create, nil), nil}, true},
		{"everything", admissionHook{rule(admissionv1.OperationAll, new(admissionv1.AllScopes)), nil}, true},
		{"updates", admissionHook{rule(admissionv1.Update, nil), nil}, false},
		{"creates outside of namespaces", admissionHook{rule(admissionv1.Create, new(admissionv1.ClusterScope)), nil}, false},
		{"this namespace", admissionHook{rule(admissionv1.Create, new(admissionv1.NamespacedScope)), injected}, true},
		{"other namespaces", admissionHook{rule(admissionv1.Create, nil), &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "no"}}}, false},
		{"nothing", admissionHook{}, false},
	} {
		if got := mayHoldUp([]admissionHook{{}, tt.hook}, map[string]string{"inject": "yes"}); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAShortGraceIsLongerWhereCreatesMayBeHeldUp(t *testing.T) {
	mutating := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{Rules: []admissionv1.RuleWithOperations{
		{Operations: []admissionv1.OperationType{admissionv1.Create}}}}}}
	late := &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "late", CreationTimestamp: metav1.NewTime(epoch.Add(time.Hour + time.Second))},
	}}}}
	for _, tt := range []struct {
		name  string
		grace time.Duration
		hook  runtime.Object
		late  bool
		want  time.Duration
	}{
		{"no webhooks", 0, nil, false, 100 * time.Millisecond},
		{"a webhook", 0, mutating, false, 1500 * time.Millisecond},
		{"a webhook, and a grace that is longer", 2 * time.Second, mutating, false, 2 * time.Second},
		{"an object came late before", 0, nil, true, 1500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			deleted := metav1.NewTime(epoch.Add(time.Hour))
			ns := terminating(func(ns *corev1.Namespace) { ns.DeletionTimestamp = &deleted })
			b := newBench(t, ns)
			b.cfg.Grace = tt.grace
			if tt.hook != nil {
				if err := b.client.Tracker().Add(tt.hook); err != nil {
					t.Fatal(err)
				}
			}
			if tt.late {
				b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return !b.late.Load(), late, nil })
				b.mustSync(t)
			}
			if next := b.mustSync(t); next.after != tt.want {
				t.Errorf("next look in %v, want %v", next.after, tt.want)
			}
			b.clock.Step(tt.want)
			b.mustSync(t)
			if actions := requests(b.client.Actions()); actions[len(actions)-1] != "create namespaces/finalize" {
				t.Errorf("last request %s", actions[len(actions)-1])
			}
		})
	}
}
