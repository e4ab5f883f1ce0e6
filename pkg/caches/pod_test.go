package caches

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/fakeapi"
)

func fullPod() *corev1.Pod {
	always, seconds, isTrue := corev1.ContainerRestartPolicyAlways, int64(300), true
	at := metav1.NewTime(time.Unix(1e9, 0))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-x", Namespace: "shop", UID: "u1", ResourceVersion: "7", Generation: 2, GenerateName: "web-",
			CreationTimestamp: at, DeletionTimestamp: &at,
			Labels:          map[string]string{"app": "web"},
			Annotations:     map[string]string{"controller.kubernetes.io/pod-deletion-cost": "-3", "other": "large"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "owner", Controller: &isTrue}},
			Finalizers:      []string{"example.com/hold"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: corev1.PodSpec{
			NodeName:       "n1",
			Tolerations:    []corev1.Toleration{{Key: "k", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds}},
			InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always}, {Name: "setup"}},
			Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Reason: "Evicted",
			Conditions: []corev1.PodCondition{
				{Type: "Ready", Status: "True", Reason: "r", LastTransitionTime: at, Message: "text"},
				{Type: "PodScheduled", Status: "True", LastTransitionTime: at},
				{Type: "DisruptionTarget", Status: "False", Reason: "DeletionByTaintManager"},
				{Type: "ContainersReady", Status: "True"},
			},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "a", RestartCount: 1}, {Name: "b", RestartCount: 4}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "side", RestartCount: 2}, {Name: "setup", RestartCount: 9}},
		},
	}
}

func TestTrimPodKeepsFieldsOfControllers(t *testing.T) {
	in := fullPod()
	at := in.CreationTimestamp
	want := &Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-x", Namespace: "shop", UID: "u1", ResourceVersion: "7", Generation: 2,
			CreationTimestamp: at, DeletionTimestamp: &at,
			Labels:          map[string]string{"app": "web"},
			Annotations:     map[string]string{"controller.kubernetes.io/pod-deletion-cost": "-3"},
			OwnerReferences: in.OwnerReferences,
			Finalizers:      []string{"example.com/hold"},
		},
		NodeName: "n1", Phase: "Running", Reason: "Evicted",
		Tolerations:     in.Spec.Tolerations,
		Ready:           Condition{Status: "True", Since: at},
		Scheduled:       Condition{Status: "True", Since: at},
		Disruption:      Condition{Status: "False"},
		Restarts:        4,
		SidecarRestarts: 2, // ordinary init containers do not count
	}
	fakeapi.WantEqual(t, "trimmed pod", TrimPod(in), want)
}

func TestPodsOfOneOwnerShareEqualValues(t *testing.T) {
	share := newShared(0)
	a, b := trimPod(share, fullPod()), trimPod(share, fullPod())
	if &a.OwnerReferences[0] != &b.OwnerReferences[0] || &a.Tolerations[0] != &b.Tolerations[0] {
		t.Error("equal owner references or tolerations are stored twice")
	}
	a.Labels["probe"] = "written by the test only"
	if b.Labels["probe"] == "" {
		t.Error("equal label maps are stored twice")
	}
}

// A trimmed pod has labels, owners and tolerations equal to those of the original, also after other pods.
func TestSharedValuesAreEqual(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	share := newShared(0)
	for range 8_000 {
		n := rnd.IntN(4 * len(share.labels.slots)) // more values than slots, so that slots change hands
		seconds, controller := int64(n%3), n%2 == 0
		pod := fullPod()
		pod.Labels = map[string]string{"app": strconv.Itoa(n), "n": strconv.Itoa(n % 7)}
		pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(strconv.Itoa(n / 3)), Name: strconv.Itoa(n % 3), Controller: &controller}}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: strconv.Itoa(n / 3), TolerationSeconds: &seconds}}
		got := trimPod(share, pod)
		if !maps.Equal(got.Labels, pod.Labels) || !cmp.Equal(got.OwnerReferences, pod.OwnerReferences) || !cmp.Equal(got.Tolerations, pod.Spec.Tolerations) {
			t.Fatalf("seed %d, value %d: got %v %v %v", seed, n, got.Labels, got.OwnerReferences, got.Tolerations)
		}
	}
}

// Fields of endpoints are cached only on request.
func TestTrimPodKeepsEndpointOnRequest(t *testing.T) {
	in := fullPod()
	always := corev1.ContainerRestartPolicyAlways
	in.Spec.Hostname, in.Spec.Subdomain = "web-x", "web"
	in.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	in.Spec.InitContainers = []corev1.Container{
		{RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090, Protocol: "TCP"}}},
		{Ports: []corev1.ContainerPort{{Name: "setup", ContainerPort: 1, Protocol: "TCP"}}},
	}
	in.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP", HostPort: 3}, {ContainerPort: 1}}
	want := &Endpoint{
		IPs: in.Status.PodIPs, Hostname: "web-x", Subdomain: "web",
		Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080, Protocol: "TCP"}, {Name: "metrics", ContainerPort: 9090, Protocol: "TCP"},
		}}},
	}
	share := newShared(PodEndpoint)
	a, b := trimPod(share, in.DeepCopy()).Endpoint, trimPod(share, in.DeepCopy()).Endpoint
	fakeapi.WantEqual(t, "endpoint", a, want)
	if &a.Containers[0] != &b.Containers[0] {
		t.Error("equal ports are stored twice")
	}
	fakeapi.Want(t, "endpoint without a request", trimPod(newShared(NodeCPU), in).Endpoint, nil)
	if got := unsafe.Sizeof(Pod{}); got > 448 {
		t.Errorf("a cached pod takes %d bytes, want at most 448, a size class of the allocator", got)
	}
}
