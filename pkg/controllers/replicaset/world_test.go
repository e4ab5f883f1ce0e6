package replicaset

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/internal/faket"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// world runs the controller on a fake API server in a bubble of fake time.
type world struct{ fakemanager.World }

// inWorld runs a test with objects.
func inWorld(t *testing.T, test func(*testing.T, *world), objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		object.(metav1.Object).SetResourceVersion("1") // writes get higher versions
	}
	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset(t, objects...)
		client.SetListVersions("*")
		test(t, &world{fakemanager.World{Clientset: client, T: t, Registration: Registration(DefaultConfig()), Recorder: &record.FakeRecorder{}}})
	})
}

// standby starts caches and a controller without a term, until the test ends.
func (w *world) standby() (begin func() (end func())) {
	w.T.Helper()
	c, stop := w.Standby()
	w.T.Cleanup(stop)
	return func() (end func()) {
		end = fakeapi.Term(w.T, c.Run)
		w.T.Cleanup(end)
		return end
	}
}

func (w *world) set(name string) *appsv1.ReplicaSet {
	obj := fakeapi.Must(w.Tracker().Get(appsv1.SchemeGroupVersion.WithResource("replicasets"), metav1.NamespaceDefault, name))
	return obj.(*appsv1.ReplicaSet).DeepCopy()
}

func (w *world) scale(name string, replicas int) {
	rs := w.set(name)
	rs.Spec.Replicas = new(int32(replicas))
	rs.Generation++
	fakeapi.Must(w.AppsV1().ReplicaSets(rs.Namespace).Update(w.T.Context(), rs, metav1.UpdateOptions{}))
}

// active returns the names of the active pods of a ReplicaSet.
func (w *world) active(name string) (names []string) {
	list := fakeapi.Must(w.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), metav1.NamespaceDefault))
	for _, pod := range list.(*corev1.PodList).Items {
		if caches.TrimPod(&pod).IsActive() && metav1.IsControlledBy(&pod, w.set(name)) {
			names = append(names, pod.Name)
		}
	}
	return names
}

// bounds checks the number of active pods after each write.
func (w *world) bounds(least, most int) {
	w.After(func() {
		if n := len(w.active("web")); n < least || n > most {
			w.T.Errorf("%d active pods after a write, want %d to %d", n, least, most)
		}
	})
}

// TestFrozenPodWatch: the controller sees no events of pods, and scales on live reads.
func TestFrozenPodWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.standby()()
		w.Freeze("pods", true)
		for _, step := range []struct {
			to   int
			wait time.Duration
		}{{7, time.Second}, {2, 2 * controller.ConsistencyTimeout}, {1, time.Second}, {5, 2 * controller.ConsistencyTimeout}} {
			w.bounds(min(len(w.active("web")), step.to), max(len(w.active("web")), step.to))
			w.scale("web", step.to)
			if time.Sleep(step.wait); step.wait > time.Second && len(w.active("web")) != step.to {
				t.Errorf("%v are active, want %d pods", w.active("web"), step.to)
			}
		}
		w.Freeze("pods", false)
		time.Sleep(time.Minute)
		if n := len(w.active("web")); n != 5 || w.set("web").Status.Replicas != 5 {
			t.Errorf("%d pods, status %+v", n, w.set("web").Status)
		}
	}, newSet(3))
}

// TestStandbyWithLateCaches: the caches of a new leader lack the work of the last leader. A live read precedes the
// first write.
func TestStandbyWithLateCaches(t *testing.T) {
	for _, tt := range []struct{ from, to int }{{2, 6}, {6, 2}} {
		t.Run(fmt.Sprintf("%d to %d", tt.from, tt.to), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				end := w.standby()()
				next := w.standby()
				w.Freeze("pods", true)
				w.scale("web", tt.to)
				time.Sleep(2 * controller.ConsistencyTimeout)
				end()
				w.bounds(tt.to, tt.to)
				next()
				time.Sleep(10 * time.Second)
				w.Freeze("pods", false)
				time.Sleep(time.Minute)
				if n := len(w.active("web")); n != tt.to || int(w.set("web").Status.Replicas) != tt.to {
					t.Errorf("%d active pods, status %+v, want %d", n, w.set("web").Status, tt.to)
				}
			}, newSet(int32(tt.from)))
		})
	}
}

// TestAdoptionByOwnerThatIsNoController has a case of upstream's integration test.
func TestAdoptionByOwnerThatIsNoController(t *testing.T) {
	pod := apiPod(newPod("pod"))
	pod.OwnerReferences[0].Controller, pod.OwnerReferences[0].BlockOwnerDeletion = new(false), nil
	inWorld(t, func(t *testing.T, w *world) {
		w.standby()()
		fakeapi.Want(t, "creates", w.Count("create pods"), 0)
		fakeapi.WantEqual(t, "owners", w.Pod("pod").OwnerReferences, newPod("").OwnerReferences)
	}, newSet(1), pod)
}

// TestPodsBesideRelatedPodsAreDeletedFirst: of the pods of a rollout, a pod that shares its node with a pod of the
// older ReplicaSet is deleted first.
func TestPodsBesideRelatedPodsAreDeletedFirst(t *testing.T) {
	var objects []runtime.Object
	add := func(set string, nodes ...string) {
		rs := newSet(int32(len(nodes)), func(rs *appsv1.ReplicaSet) {
			rs.Name, rs.UID = set, types.UID(set)
			rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: new(true)}}
		})
		objects = append(objects, rs)
		for _, node := range nodes {
			pod := apiPod(newPod(set+"-on-"+node, onNode(node)))
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, ownerKind)}
			// The last pod goes if nodes are not compared.
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: int32(len(objects))}}
			objects = append(objects, pod)
		}
	}
	add("old", "node-1")
	add("new", "node-0", "node-1", "node-2")
	inWorld(t, func(t *testing.T, w *world) {
		w.standby()()
		w.scale("new", 2)
		synctest.Wait()
		if left := w.active("new"); len(left) != 2 || slices.Contains(left, "new-on-node-1") {
			t.Errorf("left are %v, want all but new-on-node-1", left)
		}
	}, objects...)
}

func TestMain(m *testing.M) { faket.Main(m) }

// now is the time of the unit tests.
var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// newSet returns a ReplicaSet with the UID set that selects app=web.
func newSet(replicas int32, edits ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	app := map[string]string{"app": "web"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "set", ResourceVersion: "10", Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}},
		},
	}
	for _, edit := range edits {
		edit(rs)
	}
	return rs
}

// newPod returns a running pod of the ReplicaSet of newSet. The UID equals the name.
func newPod(name string, edits ...func(*caches.Pod)) *caches.Pod {
	pod := &caches.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "5", Labels: map[string]string{"app": "web"},
			CreationTimestamp: ago(time.Hour),
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(newSet(0), ownerKind)},
		},
		Phase: corev1.PodRunning,
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// apiPod returns a pod of the API server.
func apiPod(pod *caches.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: corev1.PodSpec{NodeName: pod.NodeName}, Status: corev1.PodStatus{Phase: pod.Phase}}
}

func podList(pods ...*caches.Pod) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "20"}}
	for _, pod := range pods {
		list.Items = append(list.Items, *apiPod(pod))
	}
	return list
}

func phase(p corev1.PodPhase) func(*caches.Pod) { return func(pod *caches.Pod) { pod.Phase = p } }

func onNode(name string) func(*caches.Pod) { return func(pod *caches.Pod) { pod.NodeName = name } }

func labelled(l map[string]string) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.Labels = l }
}

func createdAt(t metav1.Time) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.CreationTimestamp = t }
}

func version(v string) func(*caches.Pod) { return func(pod *caches.Pod) { pod.ResourceVersion = v } }

func readySince(t metav1.Time) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.Ready = caches.Condition{Status: corev1.ConditionTrue, Since: t} }
}

func cost(value string) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: value} }
}

func deleting(pod *caches.Pod) { pod.DeletionTimestamp = new(ago(time.Second)) }

func orphaned(pod *caches.Pod) { pod.OwnerReferences = nil }

func ownedBy(uid types.UID) func(*caches.Pod) {
	return func(pod *caches.Pod) {
		other := newSet(0)
		other.UID = uid
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other, ownerKind)}
	}
}

func podNames(pods []*caches.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// TestPodsThatFailSoon: ten pods fail a second after each create. The clock of the API server may be behind, and the
// pod garbage collector may keep only ten failed pods.
func TestPodsThatFailSoon(t *testing.T) {
	for _, tt := range []struct{ behind, keep int }{{0, 1000}, {30, 1000}, {0, 10}} { // seconds, failed pods
		inWorld(t, func(t *testing.T, w *world) {
			w.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).CreationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(-tt.behind) * time.Second).Truncate(time.Second))
				return false, nil, nil
			})
			w.standby()()
			var failed []string
			for range 600 {
				time.Sleep(time.Second)
				for _, name := range w.active("web") {
					pod := w.Pod(name)
					pod.Status.Phase = corev1.PodFailed
					fakeapi.Must(w.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))
					failed = append(failed, name)
				}
				for ; len(failed) > tt.keep; failed = failed[1:] {
					w.Remove("pods", metav1.NamespaceDefault, failed[0])
				}
			}
			if n := w.Count("create pods"); n > 40 {
				t.Errorf("%+v: %d pods were created in ten minutes, want 40 at most", tt, n)
			}
		}, newSet(10))
	}
}
