package replicaset

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/pkg/caches"
)

// apiPod returns a pod of the API server.
func apiPod(pod *caches.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: corev1.PodSpec{NodeName: pod.NodeName}, Status: corev1.PodStatus{Phase: pod.Phase}}
}

// TestOwnerOfAChangedPod: after a conflict nothing is created, because the count of pods is not known. The
// next sync decides on the changed pod.
func TestOwnerOfAChangedPod(t *testing.T) {
	other := labelled(map[string]string{"app": "db"})
	newer := version("9")
	for _, tt := range []struct {
		name    string
		cached  *caches.Pod
		next    []*caches.Pod
		patches int
		creates int // of a ReplicaSet with one replica
	}{
		{"adopted as it is now", newPod("a", orphaned), []*caches.Pod{newPod("a", orphaned, newer)}, 2, 0},
		{"no longer selected, not adopted", newPod("a", orphaned), []*caches.Pod{newPod("a", orphaned, newer, other)}, 1, 1},
		{"adopted by another", newPod("a", orphaned), []*caches.Pod{newPod("a", ownedBy("another"), newer)}, 1, 1},
		{"ours already", newPod("a", orphaned), []*caches.Pod{newPod("a", newer)}, 1, 0},
		{"being deleted, not adopted", newPod("a", orphaned), []*caches.Pod{newPod("a", orphaned, newer, deleting)}, 1, 1},
		{"gone, not adopted", newPod("a", orphaned), nil, 1, 1},
		{"released as it is now", newPod("a", other), []*caches.Pod{newPod("a", other, newer)}, 2, 1},
		{"selected again, not released", newPod("a", other), []*caches.Pod{newPod("a", newer)}, 1, 0},
		{"gone, not released", newPod("a", other), nil, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1, statusOfSize(1)), tt.cached)
			var patched []string
			b.on("patch pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
				var body struct {
					Metadata struct{ ResourceVersion string }
				}
				if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &body); err != nil {
					t.Fatal(err)
				}
				patched = append(patched, body.Metadata.ResourceVersion)
				if call == 1 {
					return nil, apierrors.NewConflict(podResource, "a", errors.New("it has changed"))
				}
				response := newPod("a", version("10"))
				if tt.cached.ControllerUID() != "" {
					response = newPod("a", version("10"), orphaned, other)
				}
				return apiPod(response), nil
			})
			if _, err := b.run(t.Context()); !apierrors.IsConflict(err) || b.count("create pods") > 0 {
				t.Fatalf("error %v, requests %v, want a conflict and no create", err, b.requests())
			}
			b.pods = tt.next
			if _, err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tt.patches == 2 && ready(b, versions("9", "10"), now) {
				t.Error("a cache that does not show the patch is good enough for the next sync")
			}
			creates := b.count("create pods")
			if want := []string{"5", "9"}[:tt.patches]; !slices.Equal(patched, want) || creates != tt.creates {
				t.Errorf("patched as of %v and created %d, want %v and %d", patched, creates, want, tt.creates)
			}
		})
	}
}

// TestRefusedOwnership: a rejected adoption or release is repeated after a minute, with one event each
// time.
func TestRefusedOwnership(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  *caches.Pod
	}{
		{"adoption", newPod("a", orphaned)},
		{"release", newPod("a", labelled(map[string]string{"app": "db"}))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(0, statusOfSize(0)), tt.pod)
			b.on("patch pods", fails(apierrors.NewForbidden(podResource, "a", errors.New("no"))))
			for after, want := range []int{1, 1, 2} {
				b.now = now.Add(time.Duration(after) * 30 * time.Second)
				b.deps.Clock.(*testingclock.FakeClock).SetTime(b.now)
				result, err := b.run(t.Context())
				if patches := b.count("patch pods"); err != nil || result.RequeueAfter == 0 || patches != want {
					t.Errorf("after %d s: result %+v, error %v, %d patches, want %d", after*30, result, err, patches, want)
				}
			}
			if told := b.told(); len(told) != 2 {
				t.Errorf("events are %q, want one for each refusal", told)
			}
		})
	}
}

// TestRefusedReleaseIsTriedAgainAfterALiveRead: a live read lists selected pods only, so the list lacks the
// pod to release.
func TestRefusedReleaseIsTriedAgainAfterALiveRead(t *testing.T) {
	b := newBench(t, newSet(1, statusOfSize(0)), newPod("a", labelled(map[string]string{"app": "db"})))
	b.on("patch pods", fails(apierrors.NewForbidden(podResource, "a", errors.New("no"))))
	b.Controller.baseline.Reset()
	if result, err := b.run(t.Context()); err != nil || result.RequeueAfter == 0 || result.RequeueAfter > time.Minute {
		t.Errorf("result %+v, error %v, want another sync when the release may be tried again", result, err)
	}
	if b.wants(t, "patch pods", "get replicasets", "list pods", "create pods", "update replicasets/status"); b.backoffs.ownership.Remaining(now) != time.Minute {
		t.Error("the live read, which does not list the pod, ended the back-off")
	}
}

// TestAdoptionWithoutEffect: a webhook removes the owner. Pods without effective adoption are not replaced
// again and again.
func TestAdoptionWithoutEffect(t *testing.T) {
	b := newBench(t, newSet(1, statusOfSize(0)), newPod("a", orphaned))
	b.on("patch pods", func(int, clienttesting.Action) (runtime.Object, error) { return apiPod(newPod("a", orphaned)), nil })
	b.on("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		pod.OwnerReferences = nil
		return pod, nil
	})
	b.on("delete pods", func(int, clienttesting.Action) (runtime.Object, error) { return &corev1.Pod{}, nil })
	if _, err := b.run(t.Context()); err == nil {
		t.Error("no error")
	}
	b.wants(t, "get replicasets", "patch pods", "create pods", "delete pods", "update replicasets/status")
}
