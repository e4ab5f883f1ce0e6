package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
)

// TestSlowStart: batches double in size until a create fails. A cut batch is continued with its size.
func TestSlowStart(t *testing.T) {
	for _, tt := range []struct{ first, allowed, creates int }{{0, 0, 1}, {0, 5, 1 + 2 + 4}, {0, 300, 300}, {64, 70, 64 + 128}, {500, 0, 300}} {
		b := newBench(t, newSet(300))
		b.backoffs.batchSize = tt.first
		b.On("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
			if call > tt.allowed {
				return nil, apierrors.NewForbidden(podResource, "web", errors.New("quota"))
			}
			return a.(clienttesting.CreateAction).GetObject(), nil
		})
		_, _ = b.run(t.Context())
		fakeapi.Want(t, fmt.Sprintf("%+v: creates", tt), b.Count("create pods"), tt.creates)
	}
	b := newBench(t, newSet(300))
	b.backoffs.batchSize, b.slots, b.now = 64, writelimit.New(clock.RealClock{}, 0), time.Unix(0, 0)
	b.mustRun(t)
	fakeapi.Want(t, "size of a batch that was cut", b.backoffs.batchSize, 64)
}

func TestCreateUntilNameIsFree(t *testing.T) {
	b := newBench(t, newSet(1))
	var tried []string
	b.On("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		name := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name
		tried = append(tried, name)
		if call <= 2 {
			return nil, apierrors.NewAlreadyExists(podResource, name)
		}
		return nil, nil
	})
	b.On("list pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		return podList(newPod(tried[call-1], ownedBy("another"))), nil
	})
	b.mustRun(t)
	if len(tried) != 3 || tried[0] == tried[1] || tried[1] == tried[2] || len(b.expectations.creates) != 0 {
		t.Errorf("names tried are %v, names kept %v", tried, b.expectations.creates)
	}
}

// TestNameDrawnTwice: a name that a create of the same sync used does not count as that create.
func TestNameDrawnTwice(t *testing.T) {
	b := newBench(t, newSet(2))
	made, found := []string{}, newPod("first")
	b.On("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		if found.Name = pod.Name; call == 2 {
			return nil, apierrors.NewAlreadyExists(podResource, pod.Name)
		}
		made, pod.UID = append(made, pod.Name), found.UID
		return pod, nil
	})
	b.On("list pods", func(int, clienttesting.Action) (runtime.Object, error) { return podList(found), nil })
	b.mustRun(t)
	fakeapi.Want(t, "pods created", len(made), 2)
}

// TestVaryingRejectionsWriteOneStatus: a webhook may return another message each time, and the event of a
// status causes another sync.
func TestVaryingRejectionsWriteOneStatus(t *testing.T) {
	b := newBench(t, newSet(1, statusOfSize(0)))
	b.On("create pods", func(call int, _ clienttesting.Action) (runtime.Object, error) {
		return nil, apierrors.NewForbidden(podResource, "web", fmt.Errorf("request %d", call))
	})
	b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		b.rs = a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
		return b.rs, nil
	})
	for _, after := range []time.Duration{0, time.Second, failureInterval} {
		b.now = now.Add(after)
		if _, err := b.run(t.Context()); err == nil {
			t.Error("no error")
		}
	}
	b.Wants(t, "create pods", "update replicasets/status", "create pods", "create pods", "update replicasets/status")
	fakeapi.Want(t, "reason of the condition", b.rs.Status.Conditions[0].Reason, "FailedCreate")
}

// The events of the retries are equal and are merged.
func TestRejectedCreateIsRetriedByItsName(t *testing.T) {
	b := newBench(t, newSet(3))
	var tried []string
	b.On("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		name := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name
		tried = append(tried, name)
		return nil, apierrors.NewForbidden(podResource, name, errors.New("exceeded quota"))
	})
	if _, err := b.run(t.Context()); err == nil {
		t.Error("no error")
	}
	b.rs = newSet(3)
	if _, err := b.run(t.Context()); err == nil || len(tried) != 2 || tried[0] != tried[1] {
		t.Errorf("next sync: error %v, names %v; want an error, and the same name again", err, tried)
	}
	if events := b.NewEvents(); len(events) != 2 || events[0] != events[1] || !strings.HasPrefix(events[0], "Warning FailedCreate Error creating: pods") {
		t.Errorf("events are %q", events)
	}
}

// TestPodModifiedByAdmission: a webhook took the label or the owner away, or gave the pod another. Making one
// after the other would never end.
func TestPodModifiedByAdmission(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*corev1.Pod)
		undone   bool // adoptions have no effect
		requests []string
		failed   bool
		event    string
	}{
		{"no label", func(pod *corev1.Pod) { pod.Labels = nil }, false, []string{"create pods", "delete pods"}, true, "so it was deleted"},
		{"no owner: it will be adopted", func(pod *corev1.Pod) { pod.OwnerReferences = nil }, false, []string{"create pods", "create pods"}, false, "Created pod: web-"},
		{"no owner, and none can be given to it", func(pod *corev1.Pod) { pod.OwnerReferences = nil }, true, []string{"create pods", "delete pods"}, true, "so it was deleted"},
		{"another owner", func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "another" }, false, []string{"create pods"}, true, "belongs to another controller"},
		{"another name", func(pod *corev1.Pod) { pod.Name = "renamed-" + pod.Name }, false, []string{"create pods", "create pods"}, false, "Created pod: renamed-web-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(2, statusOfSize(0)))
			b.backoffs.ownership.Disowned = tt.undone
			b.On("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
				pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
				pod.UID, pod.ResourceVersion = types.UID(pod.Name), "77"
				tt.change(pod)
				return pod, nil
			})
			b.On("delete pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
				if d := a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions; *d.UID == "" || d.ResourceVersion != nil {
					t.Errorf("preconditions are %+v", d)
				}
				return &corev1.Pod{}, nil
			})
			_, err := b.run(t.Context())
			if (err != nil) != tt.failed || len(b.expectations.creates) != 0 {
				t.Errorf("error %v, names kept %v", err, b.expectations.creates)
			}
			if got := slices.DeleteFunc(b.Sent(), func(r string) bool { return strings.Contains(r, "status") }); !slices.Equal(got, tt.requests) {
				t.Errorf("requests are %v, want %v", got, tt.requests)
			}
			if events := b.NewEvents(); len(events) == 0 || !strings.Contains(events[0], tt.event) {
				t.Errorf("events are %q, want %q", events, tt.event)
			}
			if !tt.failed {
				return
			}
			b.ClearActions()
			if again := b.mustRun(t); slices.Contains(b.Sent(), "create pods") || again <= 0 || again > time.Minute {
				t.Errorf("the next sync sends %v and requeues after %v, want no create for a minute", b.Sent(), again)
			}
			b.now = now.Add(foreignInterval)
			if _, err := b.run(t.Context()); err == nil || !slices.Contains(b.Sent(), "create pods") {
				t.Errorf("error %v, no create after a minute: %v", err, b.Sent())
			}
		})
	}
}

// TestWebhookThatChangesSomePods: the others are created without a pause.
func TestWebhookThatChangesSomePods(t *testing.T) {
	b := newBench(t, newSet(3, statusOfSize(0)))
	b.On("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		if call == 2 {
			pod.Labels = nil
		}
		return pod, nil
	})
	for range 2 {
		b.ClearActions()
		if _, _ = b.run(t.Context()); !slices.Contains(b.Sent(), "create pods") {
			t.Errorf("requests are %v, want creates", b.Sent())
		}
	}
}

func TestPodFor(t *testing.T) {
	rs := newSet(1, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.ObjectMeta = metav1.ObjectMeta{Name: "x", Namespace: "y", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"}}
		rs.Spec.Template.Spec.NodeName = "n"
	})
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "web-", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: new(true), BlockOwnerDeletion: new(true)}}},
		Spec: corev1.PodSpec{NodeName: "n"},
	}
	fakeapi.WantEqual(t, "pod", podFor(rs), want)
	rs.Name = strings.Repeat("w", 253) // the API server limits the prefix as well
	fakeapi.Want(t, "longest prefix", podFor(rs).GenerateName, rs.Name)
}

// TestQuotaHidesLostCreate: the quota rejects the repetition of a create that was committed, before the
// name does.
func TestQuotaHidesLostCreate(t *testing.T) {
	for _, found := range []bool{true, false} {
		t.Run(fmt.Sprintf("found=%t", found), func(t *testing.T) {
			b := newBench(t, newSet(1))
			var name string
			b.On("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
				if call == 1 {
					name = a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name
					return nil, apierrors.NewTimeoutError("no response", 0)
				}
				return nil, apierrors.NewGenericServerResponse(http.StatusForbidden, "post", podResource, name, "exceeded quota", 0, true)
			})
			b.On("list pods", func(int, clienttesting.Action) (runtime.Object, error) {
				if found {
					return podList(newPod(name)), nil
				}
				return podList(), nil
			})
			if _, err := b.run(t.Context()); !apierrors.IsTimeout(err) {
				t.Errorf("error of the lost create: %v", err)
			}
			_, err := b.run(t.Context())
			if kept := len(b.expectations.creates) == 1; (err == nil) != found || kept == found {
				t.Errorf("error %v, name kept %t", err, kept)
			}
		})
	}
}

// TestEndOfTermStopsALongSync: the next leader cannot begin before the sync returns, and does the remaining work.
func TestEndOfTermStopsALongSync(t *testing.T) {
	b := newBench(t, newSet(100))
	ctx, endTerm := context.WithCancel(t.Context())
	creates := 0
	b.On("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		if creates++; creates == 3 {
			endTerm()
		}
		return a.(clienttesting.CreateAction).GetObject(), nil
	})
	var err error
	loop := controller.NewLoop(controller.LoopConfig{Controller: Name, Queue: "test", Workers: 1, Clock: clock.RealClock{}}, prometheus.NewRegistry(),
		func(ctx context.Context, _ string) (controller.Result, error) {
			_, err = b.run(ctx)
			return controller.Result{}, err
		})
	loop.Run(ctx, func() []string { return []string{"default/set"} })
	if creates != 3 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d creates and error %v, want 3, for the batch of four was not begun, and a cancellation", creates, err)
	}
}

func namespaceEnds() error {
	err := apierrors.NewForbidden(podResource, "a", errors.New("being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// TestFirstErrorOfABatchDecides: two creates of one batch fail for different reasons. Each rejection has an event.
func TestFirstErrorOfABatchDecides(t *testing.T) {
	rejected, canceled := apierrors.NewForbidden(podResource, "web", errors.New("quota")), fmt.Errorf("no lease: %w", context.Canceled)
	for _, tt := range []struct {
		name         string
		first, last  error
		want         error
		requeueAfter time.Duration
		writes       int // of the status
	}{
		{"rejected beside a terminating namespace", rejected, namespaceEnds(), rejected, controller.ConsistencyTimeout, 1},
		{"terminating namespace beside a rejection", namespaceEnds(), rejected, nil, terminatingRecheck, 0},
		{"rejected beside a cancellation", rejected, canceled, rejected, controller.ConsistencyTimeout, 1},
		{"cancelled beside a rejection", canceled, rejected, canceled, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(9, statusOfSize(0)))
			b.backoffs.batchSize, b.expectations.creates = 2, creates{"first": {name: "first"}, "last": {name: "last"}}
			b.On("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
				if a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name == "first" {
					return nil, tt.first
				}
				return nil, tt.last
			})
			result, err := b.run(t.Context())
			fakeapi.WantError(t, "error", err, tt.want)
			fakeapi.Want(t, "next sync", result.RequeueAfter, tt.requeueAfter)
			fakeapi.WantEqual(t, "creates and statuses", []int{b.Count("create pods"), b.Count("update replicasets/status")}, []int{2, tt.writes})
			b.WantsEvents(t, "Warning FailedCreate Error creating: pods")
		})
	}
}

// TestTerminatingNamespace: the response may concern an earlier namespace, so the key is requeued after a
// minute. No event is recorded.
func TestTerminatingNamespace(t *testing.T) {
	b := newBench(t, newSet(100, statusOfSize(0)))
	b.On("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		if call < 3 {
			return nil, namespaceEnds()
		}
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		return pod, nil
	})
	for _, want := range []int{1, 2, 102} { // creates so far
		result, err := b.run(t.Context())
		creates := b.Count("create pods")
		if err != nil || result.RequeueAfter == 0 && creates < 100 || creates != want {
			t.Errorf("result %+v, error %v, %d creates, want another look and %d", result, err, creates, want)
		}
	}
	for _, event := range b.NewEvents() {
		if !strings.Contains(event, "SuccessfulCreate") {
			t.Errorf("event: %s", event)
		}
	}
}

// TestWritesLeaveTheCachedReplicaSetAlone: protobuf marshalling notes the text of a quantity in the quantity,
// so a marshalled pod must not share memory with the cache or with concurrent creates
// (race detector).
func TestWritesLeaveTheCachedReplicaSetAlone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	for name, replicas := range map[string]int32{"creates and the status": 8, "the status alone": 0} {
		t.Run(name, func(t *testing.T) {
			rs := newSet(replicas)
			size := resource.MustParse("512Mi") // without text, as from the API server
			rs.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}}
			b := newBench(t, rs)
			b.Client = fakeapi.Must(kubernetes.NewForConfig(cfg))
			b.backoffs.batchSize = 8
			before := rs.DeepCopy()
			if _, err := b.run(t.Context()); err == nil {
				t.Error("no error, so nothing was sent")
			}
			if !reflect.DeepEqual(before, rs) {
				t.Errorf("the cached ReplicaSet was written to: volumes are %#v", rs.Spec.Template.Spec.Volumes[0].EmptyDir.SizeLimit)
			}
		})
	}
}

func TestLiveReadUsesPages(t *testing.T) {
	b := newBench(t, newSet(1))
	var tokens []string
	b.On("list pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		opts := a.(clienttesting.ListActionImpl).ListOptions
		tokens = append(tokens, opts.Continue)
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
	if err != nil || len(pods) != 3 || version != "50" || len(tokens) != 3 || tokens[0] != "" || tokens[1] != "more" {
		t.Errorf("%d pods of version %q, tokens %q, error %v; want 3 pods of version 50 in three pages", len(pods), version, tokens, err)
	}
}
