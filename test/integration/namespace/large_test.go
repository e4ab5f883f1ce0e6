package namespace_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
)

// All handlers of pods share one goroutine. Listing the pods of a large namespace for each deleted pod would
// delay the ReplicaSets of all other namespaces.
func TestALargeNamespaceHoldsUpNoReplicaSet(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	const pods = 10_000
	client := cluster.Client(t)
	elsewhere := cluster.Namespace(t)
	manager := controlplane.StartProcess(t, "--kubeconfig="+cluster.ManagerKubeconfig(t, "large"), "--leader-elect=false",
		"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller", "--namespace-deletion-grace-period=0", "--secure-port=0", "-v=2")
	manager.WaitForLog(t, `"Controller started"`)
	rs, err := client.AppsV1().ReplicaSets(elsewhere).Create(t.Context(), controlplane.ReplicaSet(elsewhere, "steady", 3), metav1.CreateOptions{})
	check(t, err)
	replaced(t, client, rs, "")

	large := create(t)
	atOnce(pods, 16, func(i int) {
		for {
			_, err := client.CoreV1().Pods(large).Create(t.Context(), controlplane.Pod(large, fmt.Sprintf("pod-%05d", i), nil), metav1.CreateOptions{})
			if err == nil || apierrors.IsAlreadyExists(err) || t.Context().Err() != nil {
				return
			}
			t.Logf("create: %v", err)
		}
	})
	t.Logf("%d pods made", pods)
	begin := time.Now()
	remove(t, large)
	var took, machine []time.Duration // machine: what the API server takes for our own create meanwhile
	for namespaceKnown(t.Context(), client, large) == nil {
		victim := replaced(t, client, rs, "")
		check(t, client.CoreV1().Pods(elsewhere).Delete(t.Context(), victim, metav1.DeleteOptions{}))
		deleted := time.Now()
		replaced(t, client, rs, victim)
		took = append(took, time.Since(deleted))
		asked := time.Now()
		_, err := client.CoreV1().Pods(elsewhere).Create(t.Context(), controlplane.Pod(elsewhere, "dry", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		check(t, err)
		machine = append(machine, time.Since(asked))
	}
	if len(took) == 0 {
		t.Fatal("the namespace was gone before anything could be seen")
	}
	t.Logf("%d pods gone after %v; %d replacements elsewhere meanwhile, half of them within %v, the slowest after %v, while the API server took %v, at most %v, for a create",
		pods, time.Since(begin).Round(time.Millisecond), len(took), median(took), slices.Max(took), median(machine), slices.Max(machine))
	if most := time.Second + 3*median(machine); median(took) > most { // one may have met the machine at a bad moment
		t.Errorf("half of the replacements took more than %v, want at most %v", median(took), most)
	}
}

func median(of []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(of))[len(of)/2].Round(time.Millisecond)
}

// replaced waits until the ReplicaSet has as many active pods as it wants, without the one that was deleted,
// and names one of them.
func replaced(t *testing.T, client kubernetes.Interface, rs *appsv1.ReplicaSet, without string) (name string) {
	t.Helper()
	controlplane.Eventually(t, 2*time.Minute, func(ctx context.Context) error {
		list, err := client.CoreV1().Pods(rs.Namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		active := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil || p.Name == without })
		if len(active) != int(*rs.Spec.Replicas) {
			return fmt.Errorf("%d active pods", len(active))
		}
		name = active[0].Name
		return nil
	})
	return name
}

// A webhook delays each deletion. Deletecollection deletes objects one after the other, so a page takes longer
// than a write may take under the lease.
func TestASlowWebhookOnDeletesIsNoError(t *testing.T) {
	t.Parallel()
	const objects = 150
	client := cluster.Client(t)
	m := start(t)
	ns := create(t)
	fill(t, client, ns, 0)
	atOnce(objects, 8, func(i int) { configMap(t, client, ns, fmt.Sprintf("slow-%03d", i)) })
	hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "configmaps", Namespace: ns})
	hook.Delay(150 * time.Millisecond)
	begin := time.Now()
	remove(t, ns)
	gone(t, ns, 3*time.Minute)
	t.Logf("%d objects gone after %v", objects, time.Since(begin).Round(time.Millisecond))
	cut := m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("deletecollection"), controlplane.ByResource("configmaps"))
	if len(cut) < 2 {
		t.Errorf("%d deletecollections: the webhook was not slow enough to be noticed", len(cut))
	}
}
