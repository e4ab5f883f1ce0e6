package tainteviction

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controllers/internal/podkey"
	"minikcm/pkg/outcome"
)

func (w *world) mustBeDeletedAt(pod string, want time.Duration) {
	w.T.Helper()
	if got, ok := w.deletedAt(pod); !ok || got != want {
		w.T.Errorf("%s deleted: %v at %v, want at %v", pod, ok, got, want)
	}
}

func (w *world) mustLive(pod string) {
	w.T.Helper()
	if got, ok := w.deletedAt(pod); ok {
		w.T.Errorf("%s was deleted at %v, want it left alone", pod, got)
	}
}

// A delete without a response is not taken for a cancelled eviction.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"))
		lost := w.LoseResponse("delete", "pods")
		defer w.manager(0)()
		w.Until(time.Minute)
		fakeapi.Want(t, "a response was lost", lost.Load(), true)
		w.mustBeDeletedAt("p", 0)
		if diff := cmp.Diff([]string{marking("p")}, w.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// Terminating pods are skipped. Finished pods are deleted without a mark.
func TestTerminatingAndFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving, succeeded, failed := aPod("leaving"), aPod("succeeded"), aPod("failed")
		deleted := metav1.Now()
		leaving.DeletionTimestamp = &deleted
		succeeded.Status.Phase, failed.Status.Phase = corev1.PodSucceeded, corev1.PodFailed
		w := newWorld(t, aNode("t1"), leaving, succeeded, failed)
		defer w.manager(0)()
		w.Until(time.Second)
		w.taint(nowTaint("t2")) // a second change of the node
		w.Until(time.Minute)
		w.mustLive("leaving")
		w.mustBeDeletedAt("succeeded", 0)
		w.mustBeDeletedAt("failed", 0)
		if got, want := []int{w.Count("patch pods"), w.Count("delete pods")}, []int{0, 2}; !slices.Equal(got, want) {
			t.Errorf("%v patches and deletes, want %v", got, want)
		}
	})
}

// A delete is bounded in time, because the taint may be removed meanwhile.
func TestDeletePutOffIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := newWorld(t).standby(0)
		defer stop()
		pod := aPod("p")
		pod.Status.Phase = corev1.PodSucceeded // not marked
		c.Client = fakeapi.BusyClient(t)
		begun := time.Now()
		err := c.markAndDelete(fakeapi.Quiet(t.Context()), podkey.Key{UID: pod.UID}, pod, begun)
		if took := time.Since(begun); err == nil || took > outcome.MaxCompletionDelay {
			t.Errorf("delete ended after %v with %v, want an error after at most %v", took, err, outcome.MaxCompletionDelay)
		}
	})
}
