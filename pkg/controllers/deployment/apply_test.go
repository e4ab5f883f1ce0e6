package deployment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// createsReplicaSet creates the requested ReplicaSet.
func createsReplicaSet(_ int, a clienttesting.Action) (runtime.Object, error) {
	rs := a.(clienttesting.CreateAction).GetObject().(*appsv1.ReplicaSet).DeepCopy()
	rs.UID, rs.ResourceVersion, rs.Generation = "made", "50", 1
	return rs, nil
}

// written returns the Deployment of the last status write, or nil.
func (b *bench) written() (d *appsv1.Deployment) {
	for _, a := range b.Actions() {
		if u, ok := a.(clienttesting.UpdateAction); ok && a.GetSubresource() == "status" {
			d = u.GetObject().(*appsv1.Deployment)
		}
	}
	return d
}

func TestNewDeploymentTakesTwoWrites(t *testing.T) {
	d := newDeployment(3, deadline(600))
	b := newBench(t, d)
	b.On("create replicasets", createsReplicaSet)
	b.mustRun(t)
	b.Wants(t, "create replicasets", "update deployments/status")
	b.WantsEvents(t, "Scaled up replica set "+nextName(d)+" from 0 to 3")
	got := b.written()
	if has := progressingOf(got.Status); got.Annotations[revisionAnnotation] != "1" || got.Status.ObservedGeneration != 1 || has.Reason != "NewReplicaSetCreated" {
		t.Errorf("status written with revision %q, generation %d, Progressing %s", got.Annotations[revisionAnnotation], got.Status.ObservedGeneration, has.Reason)
	}
	fakeapi.Want(t, "the caches have to show the writes", b.expectations.barrier.Pending(), true)
}

// TestRejectedCreateFailsEachSync: the condition has the reason, no pods are given up, and each sync returns an
// error. Quota admission returns conflicts while parallel requests change the quota.
func TestRejectedCreateFailsEachSync(t *testing.T) {
	for _, refused := range []error{apierrors.NewForbidden(setResource, "x", errors.New("exceeded quota")), apierrors.NewConflict(setResource, "x", errors.New("quota"))} {
		d := newDeployment(3, within(1, 1), deadline(600))
		d.Generation = 2
		b := newBench(t, d, owned(d, "v0", newOld("old", 3, 1, sizedFor(3, 4), revision("1"))))
		b.On("create replicasets", fakeapi.Fails(refused))
		_, err := b.run(t.Context())
		fakeapi.WantError(t, "error", err, refused)
		b.Wants(t, "create replicasets", "update deployments/status")
		b.WantsEvents(t, `Warning ReplicaSetCreateError Failed to create new replica set "`+nextName(d))
		got := b.written().Status
		if has := progressingOf(got); has.Reason != reasonCreateFailed || has.Status != corev1.ConditionFalse || got.ObservedGeneration != 0 {
			t.Errorf("Progressing %+v, generation %d; want what went wrong, and no generation", has, got.ObservedGeneration)
		}
		b.d = d.DeepCopy()
		b.d.Status = got
		b.ClearActions()
		_, err = b.run(t.Context())
		fakeapi.WantError(t, "error of the next sync", err, refused)
		b.Wants(t, "create replicasets")
	}
}

// TestRepeatedCreateUsesTheSameName: the first create has no response, the second is rejected, and the third shows that
// the first was carried out.
func TestRepeatedCreateUsesTheSameName(t *testing.T) {
	d := newDeployment(3, within(1, 0), deadline(600))
	b := newBench(t, d)
	var names []string
	landed := newReplicaSet(d, nil, 3)
	landed.UID, landed.ResourceVersion = "landed", "60"
	b.On("get replicasets", func(call int, _ clienttesting.Action) (runtime.Object, error) {
		return landed, []error{apierrors.NewNotFound(setResource, landed.Name), nil}[call-1]
	})
	b.On("create replicasets", func(call int, a clienttesting.Action) (runtime.Object, error) {
		names = append(names, a.(clienttesting.CreateAction).GetObject().(*appsv1.ReplicaSet).Name)
		return nil, []error{errBroken, apierrors.NewForbidden(setResource, names[0], nil), apierrors.NewAlreadyExists(setResource, names[0])}[call-1]
	})
	for range 2 {
		if _, err := b.run(t.Context()); err == nil {
			t.Error("no error")
		}
		if has := progressingOf(b.written().Status); has.Reason != reasonCreateFailed || has.Status != corev1.ConditionFalse {
			t.Errorf("Progressing %+v, want what went wrong", has)
		}
		fakeapi.Want(t, "unknown create", b.expectations.creates[landed.Name], unknownCreate{3, now.Add(outcome.MaxCompletionDelay)})
	}
	b.ClearActions()
	if b.mustRun(t) == 0 { // no event has to follow
		t.Error("no next sync")
	}
	b.Wants(t, "create replicasets", "get replicasets")
	if len(names) != 3 || names[0] != names[2] || len(b.expectations.creates) > 0 || !b.expectations.barrier.Pending() {
		t.Errorf("posted %v, creates %v, unseen %t; want one name, it to be known, and to be seen", names, b.expectations.creates, b.expectations.barrier.Pending())
	}
}

// TestLiveReadResolvesUnknownCreate: the create is carried out by now, or never. A cache may lack a ReplicaSet at any
// age.
func TestLiveReadResolvesUnknownCreate(t *testing.T) {
	b := newBench(t, newDeployment(3))
	b.loader.Cached = b.readCached
	b.On("create replicasets", createsReplicaSet)
	b.expectations.startCreate("web-other", 3, now.Add(-outcome.MaxCompletionDelay))
	b.mustRun(t)
	b.Wants(t, "get deployments", "list replicasets", "create replicasets", "update deployments/status")
	fakeapi.Want(t, "unknown creates", len(b.expectations.creates), 0)
}

// TestTakenNameCountsAsCollision: the first collision counts at once, the next one after the back-off.
func TestTakenNameCountsAsCollision(t *testing.T) {
	for name, foreign := range map[string]func(*appsv1.ReplicaSet){
		"nobody's":                       func(rs *appsv1.ReplicaSet) { rs.OwnerReferences = nil },
		"being deleted":                  func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = new(ago(0)) },
		"another template":               func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.Containers[0].Image = "other" },
		"the predecessor's of this name": func(rs *appsv1.ReplicaSet) { rs.OwnerReferences[0].UID = "before" },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeployment(3)
			b := newBench(t, d)
			b.On("create replicasets", fakeapi.Fails(apierrors.NewAlreadyExists(setResource, "x")))
			taken := newReplicaSet(d, nil, 3)
			foreign(taken)
			b.On("get replicasets", fakeapi.Returns(taken))
			b.mustRun(t)
			b.Wants(t, "create replicasets", "get replicasets", "update deployments/status")
			status := b.written().Status
			if ptr.Deref(status.CollisionCount, 0) != 1 || status.ObservedGeneration != 0 {
				t.Errorf("collisionCount %v, generation %d; want 1 and not observed", status.CollisionCount, status.ObservedGeneration)
			}
			b.d = b.d.DeepCopy()
			b.d.Status = status
			b.ClearActions()
			fakeapi.Want(t, "next sync if the next name is taken", b.mustRun(t), time.Second)
			b.Wants(t, "create replicasets", "get replicasets")
		})
	}
}

func TestBodyOfAChange(t *testing.T) {
	rs := owned(newDeployment(3), "v1", newOld("old", 3, 1))
	const tests = `{"op":"test","path":"/metadata/uid","value":"uid of old"},{"op":"test","path":"/metadata/generation","value":2},`
	for _, tt := range []struct {
		name string
		has  map[string]string
		c    change
		want string // after the tests of UID and generation
	}{
		{"size", map[string]string{"a": "b"}, change{from: 3, to: 1}, `{"op":"add","path":"/spec/replicas","value":1}`},
		{"all", map[string]string{"a": "b"}, change{from: 3, to: 1, minReadySeconds: new(int32(7)), annotations: map[string]string{"x~y/z": "1"}},
			`{"op":"add","path":"/spec/replicas","value":1},{"op":"add","path":"/spec/minReadySeconds","value":7},` +
				`{"op":"add","path":"/metadata/annotations/x~0y~1z","value":"1"}`},
		{"no annotations yet", nil, change{from: 3, to: 1, annotations: map[string]string{"x": "1"}},
			`{"op":"add","path":"/spec/replicas","value":1},{"op":"test","path":"/metadata/resourceVersion","value":"5"},` +
				`{"op":"add","path":"/metadata/annotations","value":{"x":"1"}}`},
		{"no annotations, and none wanted", nil, change{from: 3, to: 0}, `{"op":"add","path":"/spec/replicas","value":0}`},
	} {
		rs.Annotations = tt.has
		tt.c.rs = rs
		fakeapi.Want(t, tt.name+": body", string(tt.c.patchBody()), "["+tests+tt.want+"]")
	}
}

// rollingBench is in the middle of a rollout: the old ReplicaSet has 3 of 3 pods, surge and maxUnavailable are 1.
func rollingBench(t *testing.T) *bench {
	d := newDeployment(3, within(1, 1))
	d.Generation = 2
	old := owned(d, "v0", newOld("old", 3, 9, sizedFor(3, 4), revision("1")))
	next := owned(d, "v1", newNext("next", 0, sizedFor(3, 4), revision("2")))
	return newBench(t, d, old, next)
}

// failPatches makes patches of ReplicaSets fail, by their names.
func failPatches(b *bench, failures map[string]error) {
	b.On("patch replicasets", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		return nil, failures[a.(clienttesting.PatchAction).GetName()]
	})
}

// TestFailedPreconditionIsNoRejection: another client has resized the ReplicaSet.
func TestFailedPreconditionIsNoRejection(t *testing.T) {
	invalid := apierrors.NewGenericServerResponse(422, "patch", setResource, "old", "testing path /metadata/generation failed", 0, false)
	conflict := apierrors.NewConflict(setResource, "old", errors.New("by a webhook"))
	for _, tt := range []struct {
		name string
		live func(*appsv1.ReplicaSet)
		err  error
		want outcome.Outcome
	}{
		{"resized", func(rs *appsv1.ReplicaSet) { rs.Generation++; rs.ResourceVersion = "90" }, invalid, outcome.Conflict},
		{"replaced", func(rs *appsv1.ReplicaSet) { rs.UID = "another" }, invalid, outcome.NotFound},
		{"as it was: refused", func(*appsv1.ReplicaSet) {}, invalid, outcome.Rejected},
		{"as it was, and a conflict: of a webhook", func(*appsv1.ReplicaSet) {}, conflict, outcome.Rejected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := rollingBench(t)
			failPatches(b, map[string]error{"old": tt.err})
			b.On("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
				live := b.sets[0].DeepCopy()
				tt.live(live)
				return live, nil
			})
			r := b.sendChange(t.Context(), change{rs: b.sets[0], from: 3, to: 2})
			if r.outcome != tt.want {
				t.Errorf("outcome %s, want %s", r.outcome, tt.want)
			}
			err := b.recordChange(t.Context(), b.syncState, change{rs: b.sets[0], from: 3, to: 2}, r)
			fakeapi.Want(t, "the ReplicaSet has changed", errors.Is(err, controller.ErrOutdated), tt.want != outcome.Rejected)
		})
	}
}

// TestUnknownChangeIsSentAgain: the same patch is sent before any other decision. The old ReplicaSet was to shrink
// from 3 to 2 pods.
func TestUnknownChangeIsSentAgain(t *testing.T) {
	moved := apierrors.NewGenericServerResponse(422, "patch", setResource, "old", "test failed", 0, false)
	conflict := apierrors.NewConflict(setResource, "old", errors.New("too many changes at once"))
	rejected := apierrors.NewForbidden(setResource, "old", errors.New("no"))
	patch, read := []string{"patch replicasets"}, []string{"get replicasets"}
	for _, tt := range []struct {
		name         string
		newer        bool  // the Deployment has another generation
		reply        error // to the patch
		executed     bool  // the live ReplicaSet has 2 pods
		live         error // of the live read
		requests     []string
		err          error
		settled      bool // at once
		settledLater bool // when the API server no longer executes the first patch
	}{
		{"not executed, and is now", false, nil, false, nil, patch, nil, true, true},
		{"executed", false, moved, true, nil, append(patch, read...), nil, true, true},
		{"rejected now", false, rejected, false, nil, patch, rejected, false, true},
		{"unknown again", false, errBroken, false, nil, patch, errBroken, false, false},
		{"cannot be sent", false, errors.ErrUnsupported, false, nil, patch, errors.ErrUnsupported, false, false},
		{"conflict at the same generation", false, conflict, false, nil, append(patch, read...), conflict, false, true},
		{"conflict for an unknown reason", false, conflict, false, errBroken, append(patch, read...), errBroken, false, false},
		{"the Deployment has changed: not sent again", true, nil, false, nil, read, nil, false, true},
		{"the Deployment has changed, and it was executed", true, nil, true, nil, read, nil, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := rollingBench(t)
			b.expectations.unknownChanges[b.sets[0].UID] = unknownChange{change: change{rs: b.sets[0], from: 3, to: 2}, generation: b.d.Generation, until: now.Add(outcome.MaxCompletionDelay)}
			failPatches(b, map[string]error{"old": tt.reply})
			b.On("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
				rs := b.sets[0].DeepCopy()
				if tt.executed {
					rs.Generation, rs.ResourceVersion, rs.Spec.Replicas = rs.Generation+1, "80", new(int32(2))
				}
				return rs, tt.live
			})
			if tt.newer {
				b.d = b.d.DeepCopy()
				b.d.Generation++
			}
			result, err := b.run(t.Context())
			if !errors.Is(err, tt.err) || tt.err == nil && (result.RequeueAfter == 0 || result.RequeueAfter > outcome.MaxCompletionDelay) {
				t.Errorf("result %+v, error %v, want %v", result, err, tt.err)
			}
			b.Wants(t, tt.requests...)
			if settled := len(b.expectations.unknownChanges) == 0; settled != tt.settled || b.expectations.barrier.Pending() != settled {
				t.Errorf("settled %t, barrier pending %t", settled, b.expectations.barrier.Pending())
			}
			if events := b.NewEvents(); tt.settled != slices.Contains(events, "Normal ScalingReplicaSet Scaled down replica set old from 3 to 2") {
				t.Errorf("events %q", events)
			}
			fakeapi.Want(t, "deferrals", testutil.ToFloat64(b.metrics.deferred.WithLabelValues("resize_unknown")), 1)
			b.clock.Step(outcome.MaxCompletionDelay)
			b.syncState.now = b.clock.Now()
			_, _ = b.settleChanges(t.Context(), b.syncState)
			fakeapi.Want(t, "settled later", len(b.expectations.unknownChanges) == 0, tt.settledLater)
		})
	}
}

func TestRequestsOfOneSync(t *testing.T) {
	deleting := newDeployment(3, func(d *appsv1.Deployment) { d.DeletionTimestamp, d.Finalizers = new(ago(time.Second)), []string{"x"} })
	d := newDeployment(3)
	orphan := owned(d, "v1", newNext("orphan", 3))
	orphan.OwnerReferences = nil
	relabeled := owned(d, "v1", newNext("relabeled", 3))
	relabeled.Labels = map[string]string{"app": "other"}
	released := relabeled.DeepCopy()
	released.OwnerReferences = nil
	for _, tt := range []struct {
		name    string
		d       *appsv1.Deployment
		sets    []*appsv1.ReplicaSet
		replies map[string]fakeapi.Respond
		again   time.Duration
		want    []string
		events  []string
	}{
		{"being deleted", deleting, []*appsv1.ReplicaSet{owned(deleting, "v0", newOld("old", 3, 1)), orphan}, nil, 0,
			[]string{"update deployments/status"}, nil},
		{"an orphan is adopted", d, []*appsv1.ReplicaSet{orphan}, map[string]fakeapi.Respond{"patch replicasets": fakeapi.Returns(owned(d, "v1", newNext("orphan", 3)))},
			controller.ConsistencyTimeout, []string{"get deployments", "patch replicasets", "patch replicasets", "update deployments/status"}, []string{"SuccessfulAdopt"}},
		{"an orphan is not adopted by a deleted Deployment", d, []*appsv1.ReplicaSet{orphan},
			map[string]fakeapi.Respond{"get deployments": fakeapi.Returns(newDeployment(3, func(d *appsv1.Deployment) { d.UID = "another" }))}, time.Second, []string{"get deployments"}, nil},
		{"an orphan whose adoption is rejected does not count", d, []*appsv1.ReplicaSet{orphan}, map[string]fakeapi.Respond{
			"create replicasets": createsReplicaSet, "patch replicasets": fakeapi.Fails(apierrors.NewForbidden(setResource, "orphan", errors.New("no"))),
		}, controller.ConsistencyTimeout, []string{"get deployments", "patch replicasets", "create replicasets", "update deployments/status"},
			[]string{"Warning FailedAdopt Error adopting replica set orphan", "Scaled up"}},
		{"a ReplicaSet with other labels is released and replaced", d, []*appsv1.ReplicaSet{relabeled}, map[string]fakeapi.Respond{
			"create replicasets": createsReplicaSet, "patch replicasets": fakeapi.Returns(released),
		}, controller.ConsistencyTimeout, []string{"patch replicasets", "create replicasets", "update deployments/status"}, []string{"Scaled up"}},
		{"a conflict of the status is quiet", newDeployment(0), nil, map[string]fakeapi.Respond{
			"create replicasets": createsReplicaSet, "update deployments/status": fakeapi.Fails(apierrors.NewConflict(setResource, "web", errors.New("changed"))),
		}, time.Second, []string{"create replicasets", "update deployments/status"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.d, tt.sets...)
			for request, reply := range tt.replies {
				b.On(request, reply)
			}
			fakeapi.Want(t, "next sync", b.mustRun(t), tt.again)
			b.Wants(t, tt.want...)
			b.WantsEvents(t, tt.events...)
		})
	}
}

// TestFirstWriteOfATermFollowsALiveRead: the cache lacks a ReplicaSet that exists.
func TestFirstWriteOfATermFollowsALiveRead(t *testing.T) {
	d := newDeployment(3)
	b := newBench(t, d, owned(d, "v1", newNext("next", 3, sizedFor(3, 3), revision("1"))))
	b.baseline.Reset()
	b.sets = nil
	b.mustRun(t)
	b.Wants(t, "get deployments", "list replicasets", "update deployments/status")

	in, old := newInput(d), newOld("old", 0, 1).rs
	d.Status = in.newStatus(rolloutResult{})
	for name, p := range map[string]plan{
		"create": {create: old}, "change": {changes: []change{{rs: old}}}, "delete": {delete: []*appsv1.ReplicaSet{old}},
		"status": {result: rolloutResult{observed: true}}, "nothing": {},
	} {
		p.input = in
		fakeapi.Want(t, name+" changes the cluster", b.changesCluster(syncState{d: d}, p), name != "nothing")
	}
}

// TestRejectedStatusKeepsTheTimers: a delayed step must not wait for the back-off of the key.
func TestRejectedStatusKeepsTheTimers(t *testing.T) {
	d := newDeployment(4, within(1, 1), deadline(600))
	old := owned(d, "v0", newOld("old", 2, 1, unseen, sizedFor(4, 5), revision("1")))
	b := newBench(t, d, owned(d, "v1", newNext("new", 2, sizedFor(4, 5), revision("2"))), old)
	b.memory.resizedAt[old.UID] = now
	b.On("update deployments/status", fakeapi.Fails(apierrors.NewForbidden(setResource, "web", errors.New("webhook"))))
	if result, err := b.run(t.Context()); err == nil || result.RequeueAfter == 0 || result.RequeueAfter > maxStatusInterval {
		t.Errorf("result %+v, error %v; want an error, and After at most %v", result, err, maxStatusInterval)
	}
}

// TestNoStatusForAnOutdatedSpec: the API server would reject the status of an older generation.
func TestNoStatusForAnOutdatedSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeployment(3)
		newer := d.DeepCopy()
		newer.Generation++
		store := caches.New(fakeapi.NewClientset(t, newer), caches.Config{Name: t.Name()})
		b := newBench(t, d, owned(d, "v1", newNext("new", 3, sizedFor(3, 3), revision("1"))))
		b.deployments = fakeapi.Must(store.Deployments())
		defer fakeapi.FillCaches(t, store)()
		b.mustRun(t)
		b.Wants(t)
	})
}

// TestStatusesOfCountsArePaced: the last status has 3 pods, one of them updated, ready and available.
func TestStatusesOfCountsArePaced(t *testing.T) {
	const later = 1960 * time.Millisecond
	progressing := func(reason string) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: reason}}
	}
	type edit = func(*appsv1.DeploymentStatus)
	keep := func(*appsv1.DeploymentStatus) {}
	available := func(n int32) edit {
		return func(s *appsv1.DeploymentStatus) { s.ReadyReplicas, s.AvailableReplicas = n, n }
	}
	updated := func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas = 3, 2, 2 }
	for _, tt := range []struct {
		name     string
		was, now edit
		revision string
		want     time.Duration
	}{
		{"nothing", keep, keep, "", 0},
		{"a number", keep, func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 2 }, "", later},
		{"fewer available pods, in a rollout", keep, available(0), "", later},
		{"fewer available pods, without old pods", updated, available(1), "", 0},
		{"more available pods, without old pods", updated, available(3), "", later},
		{"the first progress", keep, func(s *appsv1.DeploymentStatus) { s.ReadyReplicas, s.Conditions = 2, progressing("ReplicaSetUpdated") }, "", later},
		{"the end of the rollout", keep, func(s *appsv1.DeploymentStatus) { s.Conditions = progressing("NewReplicaSetAvailable") }, "", 0},
		{"the generation", keep, func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 2 }, "", 0},
		{"the revision", keep, keep, "4", 0},
		{"a condition", keep, func(s *appsv1.DeploymentStatus) {
			s.Conditions = append(s.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable})
		}, "", 0},
		{"all pods are updated", keep, func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 3 }, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDeployment(3)
			d.Generation = 3 // no status is complete
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
				Conditions: progressing("NewReplicaSetCreated")}
			tt.was(&d.Status)
			b := newBench(t, d)
			b.memory.statusAt = now.Add(-40 * time.Millisecond)
			status := *d.Status.DeepCopy()
			tt.now(&status)
			fakeapi.Want(t, "written after", fakeapi.Must(b.writeStatus(t.Context(), b.syncState, status, tt.revision)), tt.want)
		})
	}
}

func TestHistoryIsPrunedWithPreconditions(t *testing.T) {
	d := newDeployment(3)
	old := owned(d, "v0", newOld("old", 0, 1))
	b := newBench(t, d, old)
	var got metav1.DeleteOptions
	b.On("delete replicasets", func(call int, a clienttesting.Action) (runtime.Object, error) {
		got = a.(clienttesting.DeleteActionImpl).DeleteOptions
		if call == 1 {
			return nil, apierrors.NewConflict(setResource, "old", errors.New("changed"))
		}
		return nil, nil
	})
	if err := b.deleteHistory(t.Context(), []*appsv1.ReplicaSet{old}); !errors.Is(err, controller.ErrOutdated) {
		t.Errorf("changed since: %v", err)
	}
	fakeapi.NoError(t, b.deleteHistory(t.Context(), []*appsv1.ReplicaSet{old}))
	if got.Preconditions == nil || *got.Preconditions.UID != old.UID || *got.Preconditions.ResourceVersion != "5" {
		t.Errorf("preconditions %+v, want what was judged", got.Preconditions)
	}
}

func TestUnknownCreateReservesPods(t *testing.T) {
	l := newExpectations()
	l.startCreate("web-a", 3, now)
	none := func(string) bool { return false }
	l.resolveCreates(none, now)
	for name, want := range map[string]string{"web-a": "3 0", "web-b": "0 3"} {
		present, others := l.pendingPods(name)
		fakeapi.Want(t, "pods reserved for "+name+" and others", fmt.Sprint(present, others), want)
	}
	fakeapi.Want(t, "time until the outcome is certain", l.nextDeadline(now), outcome.MaxCompletionDelay)
	l.resolveCreates(func(string) bool { return true }, now)
	fakeapi.Want(t, "unknown creates once seen", len(l.creates), 0)
	l.startCreate("web-a", 3, now)
	l.resolveCreates(none, now.Add(outcome.MaxCompletionDelay))
	fakeapi.Want(t, "unknown creates that can no longer be carried out", len(l.creates), 0)
}

func TestStatusOfRaisedReplicaSetIsUnreliable(t *testing.T) {
	d := newDeployment(20, within(1, 0))
	tooMany := withStatus(func(s *appsv1.ReplicaSetStatus) { s.Replicas, s.ReadyReplicas, s.AvailableReplicas = 20, 20, 20 })
	reduced := owned(d, "v1", newNext("web", 2, tooMany, sizedFor(2, 3), revision("1")))
	b := newBench(t, d, reduced)
	raised := reduced.DeepCopy()
	raised.Generation, raised.Spec.Replicas, raised.ResourceVersion = 3, new(int32(20)), "60"
	b.On("patch replicasets", fakeapi.Returns(raised))
	b.mustRun(t)
	b.WantsEvents(t, "Scaled up replica set web from 2 to 20")
	shown := raised.DeepCopy()
	shown.Status.ObservedGeneration = 3
	for _, tt := range []struct {
		when  string
		known *memory
		rs    *appsv1.ReplicaSet
		want  bool
	}{
		{"raised", b.memory, raised, true}, {"the status shows that", b.memory, shown, false}, {"once it did", b.memory, raised, false},
		{"at the beginning of a term", new(newMemory()), raised, true}, {"shown", new(newMemory()), shown, false},
		{"never reduced", new(newMemory()), newReplicaSet(d, nil, 3), false},
	} {
		b.memory = tt.known
		fakeapi.Want(t, tt.when+": unreliable", b.observe(b.syncState, []*appsv1.ReplicaSet{tt.rs})[0].statusUnreliable, tt.want)
	}
}

func TestRejectedChangeHasItsOwnBackoff(t *testing.T) {
	b := rollingBench(t)
	failures := map[string]error{"old": apierrors.NewForbidden(setResource, "old", errors.New("by a webhook"))}
	failPatches(b, failures)
	p := plan{changes: []change{{rs: b.sets[1], from: 0, to: 1}, {rs: b.sets[0], from: 3, to: 2}}, capacity: 1, result: rolloutResult{observed: true}}
	names := func(sent []clienttesting.Action) (names []string) {
		for _, a := range sent {
			names = append(names, a.(clienttesting.PatchAction).GetName())
		}
		return names
	}
	for i, tt := range []struct {
		after time.Duration // since the first
		want  []string
		again time.Duration // of what is put off
	}{
		{0, []string{"old", "next"}, 0},
		{20 * time.Millisecond, []string{"next"}, 30 * time.Millisecond},
		{50 * time.Millisecond, []string{"old", "next"}, 0},
		{100 * time.Millisecond, []string{"next"}, 50 * time.Millisecond},
		{150 * time.Millisecond, []string{"old", "next"}, 0},
	} {
		b.ClearActions()
		b.clock.SetTime(now.Add(tt.after))
		b.syncState.now = b.clock.Now()
		a := b.applyPlan(t.Context(), b.syncState, p)
		if got := names(b.Actions()); !slices.Equal(got, tt.want) || a.requeueAfter != tt.again || (a.err != nil) != (tt.again == 0) || a.result.observed {
			t.Errorf("%d: sent %v, next after %v, error %v; want %v, %v", i, got, a.requeueAfter, a.err, tt.want, tt.again)
		}
		fakeapi.Want(t, fmt.Sprint(i, ": a change is deferred"), slices.Contains(a.deferred, deferResizeBackoff), tt.again > 0)
		failed := 0
		for _, e := range b.NewEvents() {
			if strings.Contains(e, "FailedScaleReplicaSet") {
				failed++
			}
		}
		if failed != len(tt.want)-1 {
			t.Errorf("%d: %d events of failed changes", i, failed)
		}
	}
	b.d = b.d.DeepCopy()
	b.d.Generation++
	if a := b.applyPlan(t.Context(), b.syncState, p); a.err == nil {
		t.Error("a new spec waits for the back-off")
	}
	changed := b.sets[0].DeepCopy()
	changed.Generation++
	if wait := b.memory.rejectedChange(b.d, changed).remaining(b.syncState.now); wait != 0 || b.memory.rejectedChange(b.d, b.sets[0]).remaining(b.syncState.now) == 0 {
		t.Errorf("a changed ReplicaSet waits for %v", wait)
	}
	clear(failures)
	b.clock.SetTime(now.Add(time.Minute))
	b.syncState.now = b.clock.Now()
	if a := b.applyPlan(t.Context(), b.syncState, p); a.err != nil || len(b.memory.rejectedChanges) > 0 || !a.result.observed {
		t.Errorf("accepted: %v, back-offs %v, observed %t", a.err, b.memory.rejectedChanges, a.result.observed)
	}
}
