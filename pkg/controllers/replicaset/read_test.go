package replicaset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestLiveReadUsesPages(t *testing.T) {
	b := newBench(t, newSet(1))
	var asked []string
	b.On("list pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		opts := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, opts.Continue)
		if opts.Limit == 0 {
			t.Error("a list without a limit")
		}
		page := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "50"}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}}}
		if call < 3 {
			page.Continue = "more"
		}
		return page, nil
	})
	pods, version, err := b.Controller.pods.Read(t.Context(), b.Script, "default", metav1.ListOptions{Continue: "nonsense"})
	if err != nil || len(pods) != 3 || version != "50" || len(asked) != 3 || asked[0] != "" || asked[1] != "more" {
		t.Errorf("%d pods of version %q, asked with tokens %q, error %v; want 3 pods of version 50 in three pages", len(pods), version, asked, err)
	}
}
