package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
)

var (
	now  = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	pods = schema.GroupResource{Resource: "pods"}
	web  = map[string]string{"app": "web"}
	db   = map[string]string{"app": "db"}
)

func owner() *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "set"}}
}

func newPod(name string, labels map[string]string, owners ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "5", Labels: labels, OwnerReferences: owners,
	}}
}

func ours() metav1.OwnerReference { return *metav1.NewControllerRef(owner(), kind) }

func edited(edit func(*metav1.OwnerReference)) metav1.OwnerReference {
	ref := ours()
	edit(&ref)
	return ref
}

func TestRelationOf(t *testing.T) {
	elsewhere := newPod("a", web)
	elsewhere.Namespace = "elsewhere"
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want Relation
	}{
		"owned":                      {newPod("a", web, ours()), Owned},
		"no longer selected":         {newPod("a", db, ours()), Releasable},
		"other orphan":               {newPod("a", db), Unrelated},
		"another namespace":          {elsewhere, Unrelated},
		"another UID":                {newPod("a", web, edited(func(r *metav1.OwnerReference) { r.UID = "another" })), Unrelated},
		"our UID, another name":      {newPod("a", web, edited(func(r *metav1.OwnerReference) { r.Name = "another" })), Unrelated},
		"our UID, another kind":      {newPod("a", web, edited(func(r *metav1.OwnerReference) { r.Kind = "Job" })), Unrelated},
		"an owner but no controller": {newPod("a", web, edited(func(r *metav1.OwnerReference) { r.Controller = nil })), Adoptable},
	} {
		fakeapi.Want(t, name, RelationOf(owner(), kind.Kind, labels.SelectorFromSet(web), tt.pod), tt.want)
	}
}

// podCache is the cache of pods.
type podCache struct{}

func (podCache) Resource() schema.GroupResource { return pods }
func (podCache) Version() string                { return "5" }
func (podCache) Expect(string)                  {}

// bench is a Changer whose API server returns the given results.
type bench struct {
	*Changer[*appsv1.ReplicaSet, *corev1.Pod]
	*fakeapi.Script
	state   State
	barrier controller.ConsistencyBarrier
	clock   *testingclock.FakePassiveClock
	bodies  []string
	patch   func(*corev1.Pod) (*corev1.Pod, error)
}

func newBench(t *testing.T) *bench {
	b := &bench{Script: fakeapi.NewScript[*corev1.Pod](t), clock: testingclock.NewFakePassiveClock(now)}
	b.patch = func(pod *corev1.Pod) (*corev1.Pod, error) {
		patched := newPod(pod.Name, pod.Labels, ours())
		patched.ResourceVersion = "9"
		return patched, nil
	}
	b.Changer = &Changer[*appsv1.ReplicaSet, *corev1.Pod]{
		Kind: kind, Noun: "pod", Objects: podCache{}, Recorder: b.Script.Recorder, Clock: b.clock,
		Get: func(context.Context, *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) { return owner(), nil },
		Patch: func(_ context.Context, pod *corev1.Pod, body []byte) (*corev1.Pod, error) {
			b.bodies = append(b.bodies, string(body))
			return b.patch(pod)
		},
	}
	return b
}

func (b *bench) run(t *testing.T, adopt, release []*corev1.Pod) ([]*corev1.Pod, error) {
	return b.AdoptAndRelease(t.Context(), owner(), adopt, release, &b.state, &b.barrier, func(n int, do func(int)) (int, error) {
		for i := range n {
			do(i)
		}
		return n, nil
	})
}

func TestPatches(t *testing.T) {
	b := newBench(t)
	adopted, err := b.run(t, []*corev1.Pod{newPod("orphan", web)}, []*corev1.Pod{newPod("stray", db, ours())})
	if err != nil || len(adopted) != 1 || adopted[0].ResourceVersion != "9" || !b.barrier.Pending() {
		t.Errorf("adopted %v, error %v, pending %t", adopted, err, b.barrier.Pending())
	}
	for i, want := range []string{
		`{"metadata":{"uid":"orphan","resourceVersion":"5","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"set",
			"controller":true,"blockOwnerDeletion":true}]}}`,
		`{"metadata":{"uid":"stray","resourceVersion":"5","ownerReferences":[{"$patch":"delete","uid":"set"}]}}`,
	} {
		fakeapi.WantEqual(t, "patch", parsed(t, b.bodies[i]), parsed(t, want))
	}
	b.WantsEvents(t, "Normal SuccessfulAdopt Adopted pod: orphan")
}

func parsed(t *testing.T, text string) (v any) {
	t.Helper()
	fakeapi.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

func TestFailedChanges(t *testing.T) {
	invalid := apierrors.NewInvalid(kind.GroupKind(), "a", nil)
	forbidden := apierrors.NewForbidden(pods, "a", errors.New("no"))
	for _, tt := range []struct {
		name              string
		err               error
		adoption, release string // reasons of events; no event if empty
		fails             bool   // the sync ends with the error
	}{
		{"deleted", apierrors.NewNotFound(pods, "a"), "", "", false},
		{"404 of a load balancer", apierrors.NewGenericServerResponse(404, "patch", pods, "a", "no backend", 0, true), "", "", true},
		{"forbidden", forbidden, "FailedAdopt", "FailedRelease", false},
		{"invalid", invalid, "FailedAdopt", "", false},
		{"denied by a webhook that names no code", &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "denied the request"}},
			"FailedAdopt", "FailedRelease", false},
		{"400 of a load balancer", apierrors.NewGenericServerResponse(400, "patch", pods, "a", "bad request", 0, true), "", "", true},
		{"changed", apierrors.NewConflict(pods, "a", errors.New("changed")), "", "", true},
	} {
		for _, change := range []struct {
			verb           string
			adopt, release []*corev1.Pod
			reason         string
		}{
			{"adopt", []*corev1.Pod{newPod("a", web)}, nil, tt.adoption},
			{"release", nil, []*corev1.Pod{newPod("a", db, ours())}, tt.release},
		} {
			t.Run(change.verb+" "+tt.name, func(t *testing.T) {
				b := newBench(t)
				b.patch = func(*corev1.Pod) (*corev1.Pod, error) { return nil, tt.err }
				if adopted, err := b.run(t, change.adopt, change.release); len(adopted) > 0 || errors.Is(err, tt.err) != tt.fails {
					t.Errorf("adopted %v, error %v", adopted, err)
				}
				b.WantsEvents(t, strings.Fields(change.reason)...)
				fakeapi.Want(t, "rejected for a minute", b.state.Remaining(now) == time.Minute, change.reason != "")
			})
		}
	}
}

func TestErrorsOfManyChangesAreBounded(t *testing.T) {
	b := newBench(t)
	b.patch = func(*corev1.Pod) (*corev1.Pod, error) { return nil, apierrors.NewInternalError(errors.New("boom")) }
	_, err := b.run(t, slices.Repeat([]*corev1.Pod{newPod("a", web)}, 100), nil)
	fakeapi.Want(t, "errors", strings.Count(err.Error(), "boom"), 10)
}

// TestRejectedChangesAreRepeatedAfterAMinute, or as soon as the labels or owners of the object change.
func TestRejectedChangesAreRepeatedAfterAMinute(t *testing.T) {
	b := newBench(t)
	b.patch = func(*corev1.Pod) (*corev1.Pod, error) {
		return nil, apierrors.NewForbidden(pods, "a", errors.New("no"))
	}
	pod := newPod("a", web)
	newer := newPod("a", web)
	newer.ResourceVersion, newer.Status.Phase = "6", corev1.PodRunning
	relabelled := newPod("a", map[string]string{"app": "web", "tier": "front"})
	for _, step := range []struct {
		after   time.Duration
		pod     *corev1.Pod
		patches int
	}{{0, pod, 1}, {30 * time.Second, newer, 1}, {40 * time.Second, relabelled, 2}, {time.Minute, newer, 3}} {
		b.clock.SetTime(now.Add(step.after))
		if _, err := b.run(t, []*corev1.Pod{step.pod}, nil); err != nil || len(b.bodies) != step.patches {
			t.Errorf("after %v: %d patches, error %v; want %d", step.after, len(b.bodies), err, step.patches)
		}
	}
	if b.state.Remaining(now.Add(time.Hour)) != 0 || len(b.state.rejected) != 0 {
		t.Error("rejections do not expire")
	}
}

func TestAdoptionWithoutEffect(t *testing.T) {
	b := newBench(t)
	b.patch = func(pod *corev1.Pod) (*corev1.Pod, error) { return newPod(pod.Name, pod.Labels), nil }
	adopted, err := b.run(t, []*corev1.Pod{newPod("a", web)}, nil)
	if err != nil || len(adopted) > 0 || !b.state.Disowned || b.state.Remaining(now) != time.Minute {
		t.Errorf("adopted %v, error %v, disowned %t", adopted, err, b.state.Disowned)
	}
	b.WantsEvents(t, "FailedAdopt")
}
