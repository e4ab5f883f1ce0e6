package deployment

import (
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/replicaset"
)

// TestPodsOfReplicaSetInDeletion runs both controllers of a rollout. A finalizer keeps the old ReplicaSet and its five
// pods, which a smaller size does not delete. New pods are ready at once.
func TestPodsOfReplicaSetInDeletion(t *testing.T) {
	type edit = func(*appsv1.Deployment)
	image := func(d *appsv1.Deployment) { d.Spec.Template = newTemplate("v2") }
	replicas := func(n int32) edit { return func(d *appsv1.Deployment) { d.Spec.Replicas = &n } }
	for _, tt := range []struct {
		name  string
		edits []edit // a minute apart
		want  []int  // new pods after each edit
	}{
		{"rollout", []edit{image}, []int{1}},
		{"scaled up, in the rollout", []edit{image, replicas(7)}, []int{1, 3}},
		{"scaled down and up", []edit{image, replicas(2), replicas(6)}, []int{1, 1, 2}},
		{"scaled while paused", []edit{image, func(d *appsv1.Deployment) { paused(d); replicas(8)(d) }}, []int{1, 4}},
		{"undone, and another template", []edit{image, func(d *appsv1.Deployment) { d.Spec.Template = newTemplate("v1") }, image}, []int{1, 0, 1}},
		{"recreated", []edit{func(d *appsv1.Deployment) { recreating(d); image(d) }}, []int{0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDeployment(5, within(1, 1))
				client := fakeapi.NewClientset(t, d)
				client.SetListVersions("*")
				client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
					pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
					return false, nil, nil
				})
				var registry [2]fakemanager.World
				for i, r := range []controller.Registration{replicaset.Registration(replicaset.DefaultConfig()), Registration(DefaultConfig())} {
					registry[i] = fakemanager.World{Clientset: client, T: t, Registration: r, Recorder: &record.FakeRecorder{}}
					_, stop := registry[i].Manager()
					defer stop()
				}
				time.Sleep(time.Minute)

				sets := client.AppsV1().ReplicaSets(d.Namespace)
				old := &fakeapi.Must(sets.List(t.Context(), metav1.ListOptions{})).Items[0]
				old.DeletionTimestamp, old.Finalizers = new(metav1.Now()), []string{"example.com/kept"}
				old.Generation++
				fakeapi.Must(sets.Update(t.Context(), old, metav1.UpdateOptions{}))
				pods := func() (kept, others int) {
					for _, pod := range fakeapi.Must(client.CoreV1().Pods(d.Namespace).List(t.Context(), metav1.ListOptions{})).Items {
						switch {
						case pod.DeletionTimestamp != nil:
						case metav1.IsControlledBy(&pod, old):
							kept++
						default:
							others++
						}
					}
					return kept, others
				}
				for i, edit := range tt.edits {
					d = fakeapi.Must(client.AppsV1().Deployments(d.Namespace).Get(t.Context(), d.Name, metav1.GetOptions{}))
					edit(d)
					d.Generation++
					fakeapi.Must(client.AppsV1().Deployments(d.Namespace).Update(t.Context(), d, metav1.UpdateOptions{}))
					time.Sleep(time.Minute)
					if kept, others := pods(); kept != 5 || others != tt.want[i] {
						t.Errorf("edit %d: %d old and %d new pods, want 5 and %d", i, kept, others, tt.want[i])
					}
				}
			})
		})
	}
}
