package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"minikcm/pkg/controllers/internal/worker"
)

func TestCreateUntilNameIsFree(t *testing.T) {
	b := newBench(t, newSet(1))
	var tried []string
	b.on("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		name := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name
		tried = append(tried, name)
		if call <= 2 {
			return nil, apierrors.NewAlreadyExists(podResource, name)
		}
		return nil, nil
	})
	b.on("list pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		theirs := corev1.Pod{ObjectMeta: newPod(tried[call-1], ownedBy("another")).ObjectMeta}
		return &corev1.PodList{Items: []corev1.Pod{theirs}}, nil
	})
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(tried) != 3 || tried[0] == tried[1] || tried[1] == tried[2] || len(b.ledger.intents) != 0 {
		t.Errorf("names tried are %v, names kept %v", tried, b.ledger.intents)
	}
}

// TestRefusedCreateIsRetriedByItsName: events about it are then all alike, and merge.
func TestRefusedCreateIsRetriedByItsName(t *testing.T) {
	b := newBench(t, newSet(3))
	var tried []string
	b.on("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		name := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name
		tried = append(tried, name)
		return nil, apierrors.NewForbidden(podResource, name, errors.New("exceeded quota"))
	})
	if _, err := b.run(t.Context()); err == nil {
		t.Error("no error")
	}
	b.rs = newSet(3)
	if result, err := b.run(t.Context()); err != nil || result.After != minCreateBackoff || len(tried) != 1 {
		t.Errorf("during the back-off: result %+v, error %v, %d creates; want After 1 s and no more creates", result, err, len(tried))
	}
	b.now = now.Add(minCreateBackoff)
	if _, err := b.run(t.Context()); err == nil || len(tried) != 2 || tried[0] != tried[1] {
		t.Errorf("after it: error %v, names %v; want the same name again", err, tried)
	}
	if told := b.told(); len(told) != 2 || told[0] != told[1] || !strings.HasPrefix(told[0], "Warning FailedCreate Error creating: pods") {
		t.Errorf("events are %q", told)
	}
}

// TestCreatedPodIsNotOurs: a webhook took the label away. Making another one would never end.
func TestCreatedPodIsNotOurs(t *testing.T) {
	b := newBench(t, newSet(1))
	b.on("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		pod.Labels = nil
		return pod, nil
	})
	if _, err := b.run(t.Context()); err == nil {
		t.Error("no error")
	}
	if wait := b.ledger.creates.wait(1, now); wait != minCreateBackoff {
		t.Errorf("creates wait %v, want 1s", wait)
	}
}

func TestTemplateWithoutLabels(t *testing.T) {
	b := newBench(t, newSet(1, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = nil }))
	if _, err := b.run(t.Context()); !errors.Is(err, errNoLabels) {
		t.Errorf("error is %v", err)
	}
	b.wants(t, "update replicasets/status")
	if told := b.told(); len(told) > 0 {
		t.Errorf("events are %v", told)
	}
}

func TestPodFor(t *testing.T) {
	rs := newSet(1, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.ObjectMeta = metav1.ObjectMeta{Name: "x", Namespace: "y", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"}}
		rs.Spec.Template.Spec.NodeName = "n"
	})
	pod := podFor(rs)
	want := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "web-", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: new(true), BlockOwnerDeletion: new(true)}}},
		Spec: corev1.PodSpec{NodeName: "n"},
	}
	if fmt.Sprintf("%+v", pod.ObjectMeta.OwnerReferences[0].String()) != want.OwnerReferences[0].String() || pod.Name != "" || pod.Namespace != want.Namespace ||
		pod.GenerateName != want.GenerateName || pod.Spec.NodeName != "n" || pod.Annotations["a"] != "b" || pod.Finalizers[0] != "f" {
		t.Errorf("pod is %+v, want %+v", pod, want)
	}
}

// TestTerminatingNamespaceIsTriedOnce per generation of the spec.
func TestTerminatingNamespaceIsTriedOnce(t *testing.T) {
	ending := apierrors.NewForbidden(podResource, "a", errors.New("being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	b := newBench(t, newSet(100, statusOfSize(0)))
	b.on("create pods", fails(ending))
	for range 3 {
		if result, err := b.run(t.Context()); err != nil || result.After != 0 {
			t.Errorf("result %+v, error %v", result, err)
		}
	}
	b.wants(t, "create pods")
	b.rs = newSet(100, func(rs *appsv1.ReplicaSet) { rs.Generation = 2 }, statusOfSize(0))
	if _, err := b.run(t.Context()); err != nil {
		t.Error(err)
	}
	b.wants(t, "create pods", "create pods")
	if told := b.told(); len(told) > 0 {
		t.Errorf("events are %v", told)
	}
}

// TestQuotaHidesLostCreate: the repetition of a create that was committed is refused for another reason than its name.
func TestQuotaHidesLostCreate(t *testing.T) {
	for _, found := range []bool{true, false} {
		t.Run(fmt.Sprintf("found=%t", found), func(t *testing.T) {
			b := newBench(t, newSet(1))
			b.ledger.intents = []intent{{"web-lost", true}}
			b.on("create pods", fails(apierrors.NewGenericServerResponse(http.StatusForbidden, "post", podResource, "web-lost", "exceeded quota", 0, true)))
			b.on("list pods", func(int, clienttesting.Action) (runtime.Object, error) {
				list := &corev1.PodList{}
				if found {
					list.Items = []corev1.Pod{{ObjectMeta: newPod("web-lost").ObjectMeta}}
				}
				return list, nil
			})
			_, err := b.run(t.Context())
			if kept := len(b.ledger.intents) == 1; (err == nil) != found || kept == found {
				t.Errorf("error %v, name kept %t", err, kept)
			}
		})
	}
}

// TestEndOfTermStopsALongSync: what a sync has not begun is the next leader's, who cannot begin before it returns.
func TestEndOfTermStopsALongSync(t *testing.T) {
	b := newBench(t, newSet(100))
	ctx, endTerm := context.WithCancel(t.Context())
	creates := 0
	b.on("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		if creates++; creates == 3 {
			endTerm()
		}
		return a.(clienttesting.CreateAction).GetObject(), nil
	})
	var err error
	loop := worker.New(worker.Config{Controller: Name, Queue: "test", Workers: 1, Clock: clock.RealClock{}}, prometheus.NewRegistry(),
		func(ctx context.Context, _ string) (worker.Result, error) {
			_, err = b.run(ctx)
			return worker.Result{}, err
		})
	loop.Run(ctx, func() []string { return []string{"default/set"} })
	if creates != 3 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d creates and error %v, want 3, for the batch of four was not begun, and a cancellation", creates, err)
	}
}
