package fakeapi

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func pod(name string, finalizers ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Finalizers: finalizers}}
}

func TestDeletesOfPods(t *testing.T) {
	uid := func(uid types.UID) metav1.DeleteOptions {
		return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	}
	now := uid("uid-p")
	now.GracePeriodSeconds = new(int64)
	for _, tt := range []struct {
		name    string
		pod     *corev1.Pod
		options metav1.DeleteOptions
		is      func(error) bool // nil: accepted
		gone    bool
	}{
		{"at once", pod("p"), now, nil, true},
		{"at once, and a finalizer holds it", pod("p", "example.org/hold"), now, nil, false},
		{"with the pod's own grace", pod("p"), uid("uid-p"), nil, false},
		{"of another UID", pod("p"), uid("other"), apierrors.IsConflict, false},
		{"of none there is", pod("q"), now, apierrors.IsNotFound, true},
	} {
		c := NewClientset(t, tt.pod)
		err := c.CoreV1().Pods("default").Delete(t.Context(), "p", tt.options)
		if (err == nil) != (tt.is == nil) || err != nil && !tt.is(err) {
			t.Errorf("%s: delete: %v", tt.name, err)
		}
		found, err := c.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
		if apierrors.IsNotFound(err) != tt.gone {
			t.Errorf("%s: get: %v, want it gone: %v", tt.name, err, tt.gone)
		} else if !tt.gone && (found.DeletionTimestamp != nil) != (tt.is == nil) {
			t.Errorf("%s: deleted at %v", tt.name, found.DeletionTimestamp)
		}
	}
}

func TestWritesOnOldVersionsConflict(t *testing.T) {
	c := NewClientset(t)
	pods := c.CoreV1().Pods("default")
	old := Must(pods.Create(t.Context(), pod("p"), metav1.CreateOptions{}))
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{"a":"b"}}}`, old.ResourceVersion)
	newer, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil || newer.ResourceVersion == old.ResourceVersion || newer.Labels["a"] != "b" {
		t.Fatalf("patched to %+v, %v", newer, err)
	}
	if _, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("patch of an old version: %v, want a conflict", err)
	}
	if _, err := pods.Update(t.Context(), old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v, want a conflict", err)
	}
	broken := errors.New("broken")
	c.Break(broken, "update pods p")
	if _, err := pods.Update(t.Context(), newer, metav1.UpdateOptions{}); !errors.Is(err, broken) {
		t.Errorf("update: %v, want %v", err, broken)
	}
	WantEqual(t, "patches sent and accepted, and all writes", []int{c.Count("patch pods"), len(c.Accepted("patch pods")), c.Writes()}, []int{2, 1, 5})
}

// client-go's own watch panics when a hundred events are waiting.
func TestFrozenWatchKeepsAllEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClientset(t)
		w := Must(c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{}))
		c.Freeze("pods", true)
		const many = 300
		for i := range many {
			Must(c.CoreV1().Pods("default").Create(t.Context(), pod(fmt.Sprint("p", i)), metav1.CreateOptions{}))
		}
		time.Sleep(time.Minute)
		select {
		case e := <-w.ResultChan():
			t.Fatalf("event %s on a frozen watch", e.Type)
		default:
		}
		c.Freeze("pods", false)
		for range many {
			<-w.ResultChan()
		}
		w.Stop()
		synctest.Wait()
	})
}
