package deployment

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// slowSet is a ReplicaSet with its pods, which its controller looks after.
type slowSet struct {
	rs   *appsv1.ReplicaSet
	pods []time.Time // when each is ready; zero: never
}

func (s *slowSet) ready(at time.Time) (n int) {
	for _, since := range s.pods {
		if !since.IsZero() && !since.After(at) {
			n++
		}
	}
	return n
}

// act brings the pods to the size, and the status to the pods. Those that are not ready go first; when a new one will be ready is asked.
func (s *slowSet) act(at time.Time, ready func() time.Time) (changed bool) {
	size := int(*s.rs.Spec.Replicas)
	slices.SortStableFunc(s.pods, func(a, b time.Time) int {
		rank := func(since time.Time) int64 {
			if since.IsZero() {
				return at.Add(time.Hour).UnixNano()
			}
			return since.UnixNano()
		}
		return cmp.Compare(rank(a), rank(b))
	})
	s.pods = s.pods[:min(len(s.pods), size)]
	for len(s.pods) < size {
		s.pods = append(s.pods, ready())
	}
	n := int32(s.ready(at))
	status := appsv1.ReplicaSetStatus{ObservedGeneration: s.rs.Generation, Replicas: int32(size), ReadyReplicas: n, AvailableReplicas: n}
	if changed = status.ObservedGeneration != s.rs.Status.ObservedGeneration || n != s.rs.Status.ReadyReplicas; changed {
		s.rs = s.rs.DeepCopy()
		s.rs.Status = status
	}
	return changed
}

// TestARolloutBehindASlowAPIServerEnds: a resize takes 0.1 s, pods get ready one by one, and two never do. Small steps wait for each other, but no wait is longer
// than 2 s, the bounds hold after each step, and all pods are new in the end.
func TestARolloutBehindASlowAPIServerEnds(t *testing.T) {
	const (
		tick        = 50 * time.Millisecond
		resizeTakes = 100 * time.Millisecond
		longestWait = 2 * time.Second
	)
	d := newDeployment(50, within(13, 12), deadline(600), annotated(revisionAnnotation, "2"))
	old := &slowSet{rs: owned(d, "v0", newOld("old", 50, 9, sizedFor(50, 63), revision("1"))), pods: slices.Repeat([]time.Time{now.Add(-time.Hour)}, 50)}
	next := &slowSet{rs: owned(d, "v1", newNext("next", 0, sizedFor(50, 63), revision("2")))}
	b := newBench(t, d)
	b.on("patch replicasets", func(call int, a clienttesting.Action) (runtime.Object, error) {
		b.clock.Step(resizeTakes)
		resized := old
		if a.(clienttesting.PatchAction).GetName() == "next" {
			resized = next
		}
		resized.rs = resized.rs.DeepCopy()
		resized.rs.Generation++
		resized.rs.ResourceVersion = strconv.Itoa(100 + call)
		var operations []struct {
			Path  string
			Value any
		}
		if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &operations); err != nil {
			t.Error(err)
		}
		for _, o := range operations {
			if o.Path == "/spec/replicas" {
				resized.rs.Spec.Replicas = new(int32(o.Value.(float64)))
			}
		}
		return resized.rs.DeepCopy(), nil
	})

	created, latest := 0, now
	ready := func() time.Time {
		if created++; created <= 2 {
			return time.Time{}
		}
		if soonest := b.clock.Now().Add(500 * time.Millisecond); latest.Before(soonest) {
			latest = soonest
		}
		latest = latest.Add(300 * time.Millisecond) // so in 2 s fewer than make a step large
		return latest
	}
	seen := func(s *slowSet) set {
		n := s.ready(b.clock.Now())
		return set{rs: s.rs, current: s == next, resizedAt: b.ledger.resizedAt[s.rs.UID], pods: podCounts{unfinished: len(s.pods), ready: n, available: n}}
	}
	due, last := now, time.Time{}
	steps, held := 0, 0
	for *old.rs.Spec.Replicas > 0 || *next.rs.Spec.Replicas < 50 {
		at := b.clock.Now()
		if at.Sub(now) > 2*time.Minute {
			t.Fatalf("it has not ended: old %d, new %d of which %d are ready", *old.rs.Spec.Replicas, *next.rs.Spec.Replicas, next.ready(at))
		}
		changed := old.act(at, ready)
		if changed = next.act(at, ready) || changed; !changed && (due.IsZero() || at.Before(due)) {
			b.clock.Step(tick)
			continue
		}
		b.task.now, due = at, time.Time{}
		var again time.Duration
		judged := decision{sets: []set{seen(old), seen(next)}, facts: b.facts(b.task, true, &again)}
		judged.replan(b.task)
		a := b.writes.apply(t.Context(), b.task, judged)
		if a.err != nil || a.moved {
			t.Fatalf("%v, moved %t", a.err, a.moved)
		}
		if a.plan.again > 0 {
			due = at.Add(a.plan.again)
		}
		if slices.Contains(a.plan.held, holdSmallStep) {
			held++
		}
		if len(sizesOf(a.done)) == 0 {
			continue
		}
		if wait := at.Sub(last); !last.IsZero() && wait > longestWait+tick {
			t.Errorf("step %d came %v after the last", steps, wait)
		}
		steps, last = steps+1, b.clock.Now()
		old.act(last, ready)
		next.act(last, ready)
		if sum := len(old.pods) + len(next.pods); sum > 63 {
			t.Errorf("step %d: %d pods", steps, sum)
		}
		if left := old.ready(last) + next.ready(last); left < 38 {
			t.Errorf("step %d: %d pods are ready", steps, left)
		}
	}
	t.Logf("%d steps in %v", steps, last.Sub(now))
	if held == 0 || steps > 15 {
		t.Errorf("%d steps, of which %d waited for others; want fewer and larger ones", steps, held)
	}
}
