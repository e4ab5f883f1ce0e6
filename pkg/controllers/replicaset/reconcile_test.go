package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	setResource = schema.GroupResource{Group: "apps", Resource: "replicasets"}
)

// bench runs one sync against a client with chosen responses. The caches are empty; the sync gets the pods
// from the test.
type bench struct {
	*Controller
	syncState
	*fakeapi.Script
}

func newBench(t *testing.T, rs *appsv1.ReplicaSet, pods ...*caches.Pod) *bench {
	t.Helper()
	script := fakeapi.NewScript(t, rs)
	base := controller.Base{
		Client: script, Caches: caches.New(script, caches.Config{Name: t.Name()}), Clock: testingclock.NewFakeClock(now),
		Metrics: prometheus.NewRegistry(), Recorder: func(string) record.EventRecorder { return script.Recorder },
	}
	c := fakeapi.Must(newController(Config{PodDeletionCost: true, TerminatingReplicas: true}, base))
	c.baseline.Read(t.Context())
	c.loader.Cached = func(t syncState) syncState { return t }
	st := c.states.For(cache.MetaObjectToName(rs), rs.UID)
	work := syncState{
		key: cache.MetaObjectToName(rs), rs: rs, selector: fakeapi.Must(metav1.LabelSelectorAsSelector(rs.Spec.Selector)), now: now, versions: versions("1000000", "1000000"), pods: pods,
		expectations: &st.expectations, backoffs: &st.backoffs,
	}
	return &bench{c, work, script}
}

func (b *bench) run(ctx context.Context) (controller.Result, error) { return b.sync(ctx, b.syncState) }

// mustRun runs a sync without an error and returns the time until the next.
func (b *bench) mustRun(t *testing.T) time.Duration {
	t.Helper()
	result, err := b.run(t.Context())
	fakeapi.NoError(t, err)
	return result.RequeueAfter
}

// versions holds the versions of the caches of pods and ReplicaSets.
func versions(pods, sets string) controller.Versions {
	return controller.Versions{podResource: pods, setResource: sets}
}

func statusOfSize(replicas int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		rs.Status = appsv1.ReplicaSetStatus{Replicas: replicas, FullyLabeledReplicas: replicas, ObservedGeneration: rs.Generation, TerminatingReplicas: new(int32)}
	}
}

func TestRequestsOfOneSync(t *testing.T) {
	broken, canceled := apierrors.NewInternalError(errors.New("boom")), fmt.Errorf("no lease: %w", context.Canceled)
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "few", errors.New("the object has been modified"))
	beingDeleted := func(rs *appsv1.ReplicaSet) {
		rs.DeletionTimestamp, rs.Finalizers = new(ago(0)), []string{"foregroundDeletion"}
	}
	for _, tt := range []struct {
		name   string
		rs     *appsv1.ReplicaSet
		pods   []*caches.Pod
		fails  string // request that fails
		err    error
		want   []string
		events int
	}{
		{"nothing to do", newSet(2, statusOfSize(2)), []*caches.Pod{newPod("a"), newPod("b")}, "", nil, nil, 0},
		{"pods of others are neither patched nor counted", newSet(2), []*caches.Pod{newPod("a", ownedBy("another"))}, "", nil,
			[]string{"create pods", "create pods", "update replicasets/status"}, 2},
		{"a failed adoption: others are tried, then the sync ends", newSet(2), []*caches.Pod{newPod("a", orphaned), newPod("b", orphaned)}, "patch pods", broken,
			[]string{"get replicasets", "patch pods", "patch pods"}, 0},
		{"being deleted: only the status", newSet(3, beingDeleted), []*caches.Pod{newPod("a"), newPod("b", orphaned), newPod("c", labelled(nil))}, "", nil,
			[]string{"update replicasets/status"}, 0},
		{"the end of the term is no event", newSet(1), nil, "create pods", canceled, []string{"create pods"}, 0},
		{"a concurrent change of the quota is retried soon", newSet(1), nil, "create pods", conflict, []string{"create pods", "update replicasets/status"}, 1},
		{"a template without labels", newSet(1, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = nil }), nil, "", errNoLabels, []string{"update replicasets/status"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.rs, tt.pods...)
			b.On(tt.fails, fakeapi.Fails(tt.err))
			if result, err := b.run(t.Context()); !errors.Is(err, tt.err) || tt.want == nil && result.RequeueAfter != 0 {
				t.Errorf("result %+v, error %v, want %v", result, err, tt.err)
			}
			b.Wants(t, tt.want...)
			events := b.NewEvents()
			fakeapi.Want(t, fmt.Sprintf("number of events %q", events), len(events), tt.events)
		})
	}
}

func TestAdoptionNeedsALiveReplicaSet(t *testing.T) {
	for name, edit := range map[string]func(*appsv1.ReplicaSet){
		"being deleted":  func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp, rs.Finalizers = new(ago(0)), []string{"orphan"} },
		"another by now": func(rs *appsv1.ReplicaSet) { rs.UID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newSet(2), newPod("a", orphaned))
			b.On("get replicasets", fakeapi.Returns(newSet(2, edit)))
			result, err := b.run(t.Context())
			if err == nil && result.RequeueAfter == 0 {
				t.Error("the sync is not repeated")
			}
			b.Wants(t, "get replicasets")
		})
	}
}

// TestRejectedReleaseIsRetriedAfterALiveRead: a live read lists selected pods only, so the list lacks the
// pod to release.
func TestRejectedReleaseIsRetriedAfterALiveRead(t *testing.T) {
	b := newBench(t, newSet(1, statusOfSize(0)), newPod("a", labelled(map[string]string{"app": "db"})))
	b.On("patch pods", fakeapi.Fails(apierrors.NewForbidden(podResource, "a", errors.New("no"))))
	b.Controller.baseline.Reset()
	if result, err := b.run(t.Context()); err != nil || result.RequeueAfter == 0 || result.RequeueAfter > time.Minute {
		t.Errorf("result %+v, error %v, want another sync when the release may be tried again", result, err)
	}
	if b.Wants(t, "patch pods", "get replicasets", "list pods", "create pods", "update replicasets/status"); b.backoffs.ownership.Remaining(now) != time.Minute {
		t.Error("the live read, which does not list the pod, ended the back-off")
	}
}

// TestWritesThatCachesDoNotShow: a frozen watch delivers no events, so a sync that wrote is requeued.
func TestWritesThatCachesDoNotShow(t *testing.T) {
	b := newBench(t, newSet(1, statusOfSize(0)))
	b.On("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		pod.ResourceVersion = "100"
		return pod, nil
	})
	b.On("update replicasets/status", func(int, clienttesting.Action) (runtime.Object, error) { return b.rs, nil })
	fakeapi.Want(t, "next sync after a create", b.mustRun(t), controller.ConsistencyTimeout)
	b.syncState.pods, b.rs, b.versions = []*caches.Pod{newPod("a")}, newSet(1, statusOfSize(1)), versions("99", "10")
	_, err := b.run(t.Context())
	fakeapi.Want(t, "the sync waits for the cache", errors.Is(err, controller.ErrOutdated), true)
	fakeapi.Want(t, "skipped syncs in the metric", testutil.ToFloat64(b.metrics.staleSkips.WithLabelValues("", "pods")), 1)
	b.now = now.Add(controller.ConsistencyTimeout)
	b.mustRun(t)
	fakeapi.Want(t, "live reads when the cache is overdue", b.Count("list pods"), 1)
	b.versions = versions("100", "10")
	fakeapi.Want(t, "next sync when all is shown", b.mustRun(t), 0)
}

// failedPods returns four pods that failed soon after their creation.
func failedPods(created metav1.Time) (pods []*caches.Pod) {
	for _, name := range []string{"a", "b", "c", "d"} {
		pods = append(pods, newPod(name, phase(corev1.PodFailed), createdAt(created)))
	}
	return pods
}

// TestPodsThatKeepFailing: pods that fail soon are replaced with a delay, and one event reports the delay. The clock of
// the API server may be ahead.
func TestPodsThatKeepFailing(t *testing.T) {
	for _, created := range []metav1.Time{ago(0), ago(-time.Hour)} {
		b := newBench(t, newSet(1, statusOfSize(0)), failedPods(created)...)
		for range 2 {
			fakeapi.Want(t, "next sync", b.mustRun(t), minFailedBackoff)
		}
		b.Wants(t)
		b.now = now.Add(minFailedBackoff)
		b.mustRun(t)
		b.Wants(t, "create pods", "update replicasets/status")
		if events := b.NewEvents(); len(events) != 2 || !strings.Contains(events[0], "BackOff") {
			t.Errorf("events are %v, want one about the back-off and one about the pod", events)
		}
	}
}

// TestFailedPodsDelayAsManyCreates: the other missing pods are created at once.
func TestFailedPodsDelayAsManyCreates(t *testing.T) {
	b := newBench(t, newSet(10, statusOfSize(1)), append(failedPods(ago(0)), newPod("e"))...)
	fakeapi.Want(t, "next sync", b.mustRun(t), minFailedBackoff)
	fakeapi.Want(t, "creates", b.Count("create pods"), 9-4)
}

// TestTerminatingNamespaceIsNoMismatch: no pods are created, and missing pods cause no alert.
func TestTerminatingNamespaceIsNoMismatch(t *testing.T) {
	for _, terminating := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			if terminating {
				ns.DeletionTimestamp, ns.Finalizers = new(ago(time.Minute)), []string{"kubernetes"}
			}
			store := caches.New(fakeapi.NewClientset(t, ns), caches.Config{Name: t.Name()})
			b := newBench(t, newSet(1, statusOfSize(0)))
			b.namespaces = fakeapi.Must(store.Namespaces())
			defer fakeapi.FillCaches(t, store)()
			b.mustRun(t)
			fakeapi.Want(t, "created", len(b.Sent()) > 0, !terminating)
			fakeapi.Want(t, "mismatch", longestMismatch(b.states, now.Add(time.Hour)) > 0, !terminating)
		})
	}
}

// TestWakeUps: the ReplicaSets that an event of a pod queues. web and twin select app=web, db selects app=db.
func TestWakeUps(t *testing.T) {
	named := func(name string, edits ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
		rs := newSet(1, edits...)
		rs.Name, rs.UID = name, types.UID("uid-"+name)
		return rs
	}
	selects := func(app string) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.Spec.Selector.MatchLabels = map[string]string{"app": app} }
	}
	sets := []runtime.Object{
		named("web"), named("twin"), named("db", selects("db")),
		named("empty", func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = &metav1.LabelSelector{} }),
		named("large", selects("large"), func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = new(int32(fewPods + 1)) }),
	}
	of := func(name string) func(*caches.Pod) {
		return func(pod *caches.Pod) {
			ref := metav1.NewControllerRef(named(name), ownerKind)
			pod.OwnerReferences = []metav1.OwnerReference{*ref}
		}
	}
	stale := func(pod *caches.Pod) { pod.OwnerReferences[0].UID = "older" }
	otherKind := func(pod *caches.Pod) { pod.OwnerReferences[0].Kind = "Job" }
	app := func(name string) func(*caches.Pod) { return labelled(map[string]string{"app": name}) }
	newer := version("6")
	all := []string{"db", "empty", "large", "twin", "web"}
	update := func(old, pod *caches.Pod) func(*Controller) {
		return func(c *Controller) { c.podUpdated(old, pod) }
	}
	added := func(pod *caches.Pod) func(*Controller) { return func(c *Controller) { c.enqueuer.OnAdd(pod) } }
	deleted := func(pod *caches.Pod) func(*Controller) { return func(c *Controller) { c.enqueuer.OnDelete(pod) } }
	events := []struct {
		name  string
		event func(*Controller)
		want  []string
		later []string
	}{
		{"a new pod wakes its owner only", added(newPod("a", of("web"))), []string{"web"}, nil},
		{"a new orphan wakes all that select it", added(newPod("a", orphaned)), []string{"twin", "web"}, nil},
		{"a new orphan without labels matches no selector of labels", added(newPod("a", orphaned, labelled(nil))), nil, nil},
		{"a new pod that is being deleted wakes its owner", added(newPod("a", of("web"), deleting)), []string{"web"}, nil},
		{"a new orphan that is being deleted queues nothing", added(newPod("a", orphaned, deleting)), nil, nil},
		{"a pod of a ReplicaSet that was replaced queues nothing", added(newPod("a", of("web"), stale)), nil, nil},
		{"a pod of another kind of owner queues nothing", added(newPod("a", of("web"), otherKind)), nil, nil},
		{"a resync queues nothing", update(newPod("a", of("web")), newPod("a", of("web"))), nil, nil},
		{"any change wakes the owner", update(newPod("a", of("web")), newPod("a", of("web"), newer)), []string{"web"}, nil},
		{"labels of an owned pod wake its owner only", update(newPod("a", of("web")), newPod("a", of("web"), newer, app("db"))), []string{"web"}, nil},
		{"a new owner: both are woken", update(newPod("a", of("web")), newPod("a", of("db"), newer)), []string{"db", "web"}, nil},
		{"released: the old owner and all that select it", update(newPod("a", of("db"), app("web")), newPod("a", orphaned, newer)), []string{"db", "twin", "web"}, nil},
		{"labels of an orphan wake all that select it now", update(newPod("a", orphaned, app("x")), newPod("a", orphaned, newer, app("db"))), []string{"db"}, nil},
		{"another change of an orphan queues nothing", update(newPod("a", orphaned), newPod("a", orphaned, newer, onNode("n"))), nil, nil},
		{"a deletion begins", update(newPod("a", of("web")), newPod("a", of("web"), newer, deleting)), []string{"web"}, nil},
		{"released while being deleted: the old owner", update(newPod("a", of("web")), newPod("a", orphaned, newer, deleting)), []string{"web"}, nil},
		{"deleted", deleted(newPod("a", of("web"))), []string{"web"}, nil},
		{"a deleted orphan queues nothing", deleted(newPod("a", orphaned)), nil, nil},
		{"updates of pods of a large ReplicaSet are gathered", func(c *Controller) {
			c.podUpdated(newPod("a", of("large")), newPod("a", of("large"), newer))
			synctest.Wait()
			c.podUpdated(newPod("b", of("large")), newPod("b", of("large"), newer))
		}, nil, []string{"large"}},
		{"the end of such a pod is not", update(newPod("a", of("large")), newPod("a", of("large"), newer, deleting)), []string{"large"}, nil},
		{"a new namespace wakes all in it", func(c *Controller) {
			c.enqueuer.NamespaceHandler().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
		}, all, nil},
		{"events outside a term are ignored", func(c *Controller) {
			c.inTerm.Store(false)
			c.enqueuer.OnAdd(newPod("a", of("web")))
			c.podUpdated(newPod("a", of("web")), newPod("a", of("web"), newer))
			c.enqueuer.OnDelete(newPod("a", of("web")))
		}, nil, nil},
	}
	inWorld(t, func(t *testing.T, w *world) {
		standby, stop := w.Standby()
		defer stop()
		c := standby.(*Controller)
		var taken func() []string
		c.loop, taken = fakemanager.RecordKeys()
		defer fakeapi.Term(t, c.Run)()
		fakeapi.WantEqual(t, "woken at the beginning of a term", taken(), all)
		for _, tt := range events {
			tt.event(c)
			now := taken()
			time.Sleep(10 * time.Second)
			if later := taken(); !slices.Equal(now, tt.want) || !slices.Equal(later, tt.later) {
				t.Errorf("%s: woken now %v and later %v, want %v and %v", tt.name, now, later, tt.want, tt.later)
			}
		}
	}, sets...)
}

func TestStatusConflict(t *testing.T) {
	conflicted := apierrors.NewConflict(setResource, "web", errors.New("newer"))
	foreign := appsv1.ReplicaSetCondition{Type: "Foreign", Status: corev1.ConditionTrue}
	for _, tt := range []struct {
		name      string
		responses []error
		live      func(*appsv1.ReplicaSet)
		failed    bool
		requests  []string
	}{
		{"written", []error{nil}, nil, false, []string{"update replicasets/status"}},
		{"conflict, then written", []error{conflicted, nil}, func(rs *appsv1.ReplicaSet) {
			rs.ResourceVersion, rs.Status.Conditions = "11", []appsv1.ReplicaSetCondition{foreign}
		}, false, []string{"update replicasets/status", "get replicasets", "update replicasets/status"}},
		{"conflict twice, from a webhook", []error{conflicted, conflicted}, nil, true,
			[]string{"update replicasets/status", "get replicasets", "update replicasets/status"}},
		{"conflict with other counts, which are newer", []error{conflicted}, func(rs *appsv1.ReplicaSet) {
			rs.ResourceVersion, rs.Status.Replicas, rs.Status.ReadyReplicas = "11", 1, 1
		}, false, []string{"update replicasets/status", "get replicasets"}},
		{"conflict with another spec", []error{conflicted}, func(rs *appsv1.ReplicaSet) { rs.Generation++ }, false,
			[]string{"update replicasets/status", "get replicasets"}},
		{"conflict with another ReplicaSet", []error{conflicted}, func(rs *appsv1.ReplicaSet) { rs.UID = "another" }, false,
			[]string{"update replicasets/status", "get replicasets"}},
		{"deleted", []error{apierrors.NewNotFound(setResource, "web")}, nil, false, []string{"update replicasets/status"}},
		{"404 of a load balancer", []error{apierrors.NewGenericServerResponse(http.StatusNotFound, "put", setResource, "web", "no backend", 0, true)}, nil, true,
			[]string{"update replicasets/status", "get replicasets", "update replicasets/status"}},
		{"other errors are not retried at once", []error{apierrors.NewInternalError(errors.New("boom"))}, nil, true, []string{"update replicasets/status"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1), newPod("a"))
			b.On("update replicasets/status", func(call int, a clienttesting.Action) (runtime.Object, error) {
				sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
				if call == 2 && sent.ResourceVersion == "11" && !slices.Contains(sent.Status.Conditions, foreign) {
					t.Error("the second try drops a condition of another writer")
				}
				return sent, tt.responses[min(call, len(tt.responses))-1]
			})
			b.On("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
				if tt.live == nil {
					return newSet(1), nil
				}
				return newSet(1, tt.live), nil
			})
			if _, err := b.run(t.Context()); (err != nil) != tt.failed {
				t.Errorf("error is %v", err)
			}
			b.Wants(t, tt.requests...)
		})
	}
}

// TestRejectedStatusIsRepeatedWithTheTemplate: admission may require a template, which the cache lacks for a
// ReplicaSet that wants no pods.
func TestRejectedStatusIsRepeatedWithTheTemplate(t *testing.T) {
	b := newBench(t, newSet(0, statusOfSize(1), func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{UID: "digest"}}
	}))
	b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
		if template := sent.Spec.Template; template.UID != "" || len(template.Spec.Containers) == 0 {
			return nil, apierrors.NewForbidden(setResource, "web", errors.New("no containers"))
		}
		return sent, nil
	})
	b.On("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
		return newSet(0, statusOfSize(1), func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}} }), nil
	})
	b.mustRun(t)
	b.Wants(t, "update replicasets/status", "get replicasets", "update replicasets/status")
}

// TestServerWithoutTerminatingReplicas: an API server that drops the field gets no status because of that
// field alone, for any ReplicaSet. Other statuses have the field, because another API server may keep it.
func TestServerWithoutTerminatingReplicas(t *testing.T) {
	b := newBench(t, newSet(1), newPod("a"))
	b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		stored := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet).DeepCopy()
		if stored.Status.TerminatingReplicas == nil {
			t.Error("a status lacks the field")
		}
		stored.Status.TerminatingReplicas = nil
		b.rs = stored
		return stored, nil
	})
	b.mustRun(t)
	*b.backoffs, *b.expectations = backoffs{}, newExpectations() // as the counts of another ReplicaSet
	b.mustRun(t)
	b.Wants(t, "update replicasets/status")
	b.rs.Status.ReadyReplicas = 1
	b.mustRun(t)
	b.Wants(t, "update replicasets/status", "update replicasets/status")
}

// TestAvailabilityRecheck: the key is requeued at the time at which the pod becomes available, as upstream:
// 700 ms for a pod ready for 4.3 s of 5.
func TestAvailabilityRecheck(t *testing.T) {
	pods := func(readyFor ...int) (pods []*caches.Pod) { // milliseconds
		for i, n := range readyFor {
			pods = append(pods, newPod(fmt.Sprint(i), readySince(ago(ms(n)))))
		}
		return pods
	}
	for _, tt := range []struct {
		name string
		pods []*caches.Pod
		late int // milliseconds that the status write took
		want time.Duration
	}{
		{"becomes available", pods(4300), 0, ms(700)},
		{"the status write took a while", pods(4300), 200, ms(500)},
		{"the moment has passed meanwhile", pods(4300), 900, 1},
		{"the first of several", pods(4300, 9000, 0), 0, ms(700)},
		{"ready in the future, by another clock", pods(-5000), 0, ms(10_000)},
		{"ready since an unknown time", []*caches.Pod{newPod("a", readySince(metav1.Time{}))}, 0, ms(5000)},
		{"available: only the status write is not shown yet", pods(5000), 0, ms(30_000)},
		{"not ready, likewise", []*caches.Pod{newPod("a")}, 0, ms(30_000)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(int32(len(tt.pods)), func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 5 }), tt.pods...)
			b.On("update replicasets/status", func(int, clienttesting.Action) (runtime.Object, error) {
				b.Clock.(*testingclock.FakeClock).SetTime(now.Add(ms(tt.late)))
				return nil, nil
			})
			fakeapi.Want(t, "next sync", b.mustRun(t), tt.want)
			fakeapi.Want(t, "recorded duration of the status", b.backoffs.statusTook, ms(tt.late))
			fakeapi.Want(t, "recorded time of the status", b.backoffs.statusAt, now.Add(ms(tt.late)))
		})
	}
}

// TestStatusesArePaced: two kinds of statuses wait since the last one. Fewer terminating pods, but not none, wait for a
// second. More ready pods wait in proportion to the duration of the last write, if a controller adds the counts up,
// and if not all pods are ready.
func TestStatusesArePaced(t *testing.T) {
	type edit = func(*appsv1.ReplicaSet)
	ready := func(pods int32) edit {
		return func(rs *appsv1.ReplicaSet) { rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = pods, pods }
	}
	desired := func(pods, most string) edit {
		return func(rs *appsv1.ReplicaSet) {
			rs.Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": pods, "deployment.kubernetes.io/max-replicas": most}
		}
	}
	replicas := func(n int32) edit { return func(rs *appsv1.ReplicaSet) { rs.Status.Replicas = n } }
	generation := func(rs *appsv1.ReplicaSet) { rs.Generation++ }
	failing := func(rs *appsv1.ReplicaSet) {
		rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate"}}
	}
	unreported := func(rs *appsv1.ReplicaSet) { rs.Status.TerminatingReplicas = nil }
	slow := func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 3600 }
	owned := func(rs *appsv1.ReplicaSet) {
		rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&appsv1.Deployment{}, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	}
	for _, tt := range []struct {
		name   string
		was    []edit // after a status of size pods, none of them ready
		size   int    // pods
		ready  int    // pods
		ending int    // pods
		took   int    // milliseconds, the last status
		since  int    // milliseconds since then
		wait   int    // milliseconds; 0: written
	}{
		{"fewer terminating", []edit{ending(3)}, 1, 0, 2, 0, 300, 700},
		{"fewer terminating, long after the last status", []edit{ending(3)}, 1, 0, 2, 0, 1000, 0},
		{"none terminating", []edit{ending(1)}, 1, 0, 0, 0, 0, 0},
		{"more terminating", []edit{ending(0)}, 1, 0, 2, 0, 300, 0},
		{"terminating for the first time", []edit{unreported}, 1, 0, 2, 0, 300, 0},
		{"fewer terminating, and another number", []edit{ending(3), ready(1)}, 1, 0, 2, 0, 300, 0},
		{"fewer terminating, and the generation", []edit{ending(3), generation}, 1, 0, 2, 0, 300, 0},
		{"the generation alone", []edit{generation}, 1, 0, 0, 0, 300, 0},
		{"a failure is over", []edit{failing}, 1, 0, 0, 0, 300, 0},

		{"one more ready", []edit{owned, ready(1)}, 15, 2, 0, 5, 300, 500},
		{"one more ready, a while after the last status", []edit{owned, ready(1)}, 15, 2, 0, 5, 800, 0},
		{"a quick API server", []edit{owned, ready(1)}, 15, 2, 0, 0, 0, 0},
		{"a slow API server", []edit{owned, ready(1)}, 15, 2, 0, 60_000, 300, 1700},
		{"few pods: each counts", []edit{owned, ready(1)}, 14, 2, 0, 20, 300, 0},
		{"few of a large Deployment", []edit{owned, ready(1), desired("50", "63")}, 14, 13, 0, 5, 300, 500},
		{"a small surge: each pod counts", []edit{owned, ready(20), desired("100", "107")}, 50, 21, 0, 5, 300, 0},
		{"a large surge", []edit{owned, ready(20), desired("100", "108")}, 50, 21, 0, 5, 300, 500},
		{"many of a small Deployment", []edit{owned, ready(1), desired("14", "18")}, 15, 2, 0, 10, 300, 0},
		{"less than a third", []edit{owned, ready(10)}, 50, 26, 0, 5, 300, 500},
		{"a third", []edit{owned, ready(10)}, 50, 27, 0, 10, 300, 0},
		{"no owner", []edit{ready(1)}, 15, 2, 0, 20, 300, 0},
		{"all ready", []edit{owned, ready(1)}, 15, 15, 0, 20, 300, 0},
		{"all ready, not available", []edit{owned, ready(0), slow}, 15, 15, 0, 20, 300, 0},
		{"fewer ready", []edit{owned, ready(2)}, 15, 1, 0, 20, 300, 0},
		{"more ready, and the generation", []edit{owned, ready(1), generation}, 15, 2, 0, 20, 300, 0},
		{"more ready, and none terminating", []edit{owned, ready(1), ending(1)}, 15, 2, 0, 20, 300, 0},
		{"more ready, and more pods", []edit{owned, ready(1), replicas(14)}, 15, 2, 0, 5, 300, 500},
		{"more ready, and more pods of another generation", []edit{owned, ready(1), replicas(14), generation}, 15, 2, 0, 5, 300, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pods []*caches.Pod
			for i := range tt.size {
				pods = append(pods, newPod(fmt.Sprint(i)))
				if i < tt.ready {
					readySince(ago(0))(pods[i])
				}
			}
			for i := range tt.ending {
				pods = append(pods, newPod(fmt.Sprint("ending-", i), deleting))
			}
			b := newBench(t, newSet(int32(tt.size), append([]edit{statusOfSize(int32(tt.size))}, tt.was...)...), pods...)
			b.backoffs.statusAt, b.backoffs.statusTook = now.Add(-ms(tt.since)), ms(tt.took)
			next := b.mustRun(t)
			if tt.wait == 0 {
				b.Wants(t, "update replicasets/status")
				return
			}
			b.Wants(t)
			fakeapi.Want(t, "next sync", next, ms(tt.wait))
		})
	}
}

// TestNoStatusForAnEarlierSize: the API server would return a conflict, and the live read after that
// would be one more request.
func TestNoStatusForAnEarlierSize(t *testing.T) { synctest.Test(t, noStatusForAnEarlierSize) }

func noStatusForAnEarlierSize(t *testing.T) {
	newer := newSet(2, func(rs *appsv1.ReplicaSet) { rs.Generation++ })
	store := caches.New(fakeapi.NewClientset(t, newer), caches.Config{Name: "newer"})
	b := newBench(t, newSet(1), newPod("a"))
	b.replicaSets = fakeapi.Must(store.ReplicaSets())
	defer fakeapi.FillCaches(t, store)()
	b.mustRun(t)
	b.Wants(t)

	// After a long sync the counts are written beside the newer spec.
	b.syncState.now = now.Add(-longSync)
	b.On("update replicasets/status", func(call int, a clienttesting.Action) (runtime.Object, error) {
		sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
		if *sent.Spec.Replicas != 2 || sent.Status.Replicas != 1 || sent.Status.ObservedGeneration != b.rs.Generation {
			t.Errorf("sent %+v", sent)
		}
		if call == 1 {
			return nil, apierrors.NewConflict(setResource, "web", errors.New("newer"))
		}
		return sent, nil
	})
	b.On("get replicasets", fakeapi.Returns(newer))
	b.mustRun(t)
	b.Wants(t, "update replicasets/status", "get replicasets", "update replicasets/status")
}

// ending sets the number of terminating pods of the status.
func ending(pods int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Status.TerminatingReplicas = &pods }
}

// TestStatusCountsConfirmedWrites: confirmed creates and deletes count, so each change of the size has
// one status.
func TestStatusCountsConfirmedWrites(t *testing.T) {
	noResponse := apierrors.NewTimeoutError("etcd is slow", 0)
	for _, tt := range []struct {
		name        string
		size        int32
		pods        []*caches.Pod
		response    func(call int, a clienttesting.Action) (runtime.Object, error) // to creates and deletes
		failed      bool
		replicas    int32
		terminating int32
	}{
		{"created", 3, nil, fakeapi.Fails(nil), false, 3, 0},
		{"created, one without a response", 3, nil, func(call int, _ clienttesting.Action) (runtime.Object, error) {
			if call == 2 {
				return nil, noResponse
			}
			return nil, nil
		}, true, 2, 0},
		{"created, without its owner", 1, nil, func(_ int, a clienttesting.Action) (runtime.Object, error) {
			made := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
			made.OwnerReferences = nil
			return made, nil
		}, false, 0, 0},
		{"rejected", 3, nil, fakeapi.Fails(apierrors.NewForbidden(podResource, "", errors.New("quota"))), true, 0, 0},
		{"deleted, and gone at once", 1, []*caches.Pod{newPod("a"), newPod("b"), newPod("c")}, fakeapi.Fails(nil), false, 1, 0},
		{"deleted, and ending", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node")), newPod("c", onNode("node"))}, fakeapi.Fails(nil), false, 1, 2},
		{"deleted by another client", 1, []*caches.Pod{newPod("a"), newPod("b")}, fakeapi.Fails(apierrors.NewNotFound(podResource, "b")), false, 1, 0},
		{"deleted by another client, from a node", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))},
			fakeapi.Fails(apierrors.NewNotFound(podResource, "b")), false, 1, 0},
		{"being deleted by another client", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))},
			fakeapi.Fails(apierrors.NewConflict(podResource, "b", errors.New("another version"))), false, 1, 1},
		{"deleted without a response", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))}, fakeapi.Fails(noResponse), true, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(tt.size), tt.pods...)
			b.On("create pods", tt.response)
			b.On("delete pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
				if _, err := tt.response(call, a); err != nil {
					return nil, err
				}
				return &corev1.Pod{}, nil
			})
			b.On("list pods", func(_ int, a clienttesting.Action) (runtime.Object, error) { // after a conflict
				name, _ := a.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
				return podList(newPod(name, onNode("node"), deleting)), nil
			})
			var statuses []appsv1.ReplicaSetStatus
			b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
				sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
				statuses = append(statuses, sent.Status)
				return sent, nil
			})
			if _, err := b.run(t.Context()); (err != nil) != tt.failed {
				t.Errorf("error is %v", err)
			}
			if len(statuses) != 1 || statuses[0].Replicas != tt.replicas || *statuses[0].TerminatingReplicas != tt.terminating {
				t.Errorf("statuses %+v, want one with %d replicas and %d terminating", statuses, tt.replicas, tt.terminating)
			}
		})
	}
}

// TestPodsMissingFromLiveRead: a live read lists only selected pods, so a pod that lost the label does not count
// as deleted.
func TestPodsMissingFromLiveRead(t *testing.T) {
	b := newBench(t, newSet(1))
	listed := []*caches.Pod{newPod("listed", version("30"))}
	controller.RecordLiveRead(&b.expectations.barrier, b.replicaSets, b.rs, b.Controller.pods, listed, "50", now)
	got := b.expectations.withoutUnlisted([]*caches.Pod{
		newPod("listed", version("30")), newPod("removed", version("20")), newPod("relabelled", version("20"), labelled(map[string]string{"app": "db"})),
	}, b.selects)
	fakeapi.WantEqual(t, "pods", podNames(got), []string{"listed", "relabelled"})
}
