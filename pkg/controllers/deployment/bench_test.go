package deployment

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/internal/faket"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/selectors"
)

var setResource = schema.GroupResource{Group: "apps", Resource: "replicasets"}

// bench runs one sync against a client with prepared results. The caches are empty, and the test provides the
// ReplicaSets.
type bench struct {
	*Controller
	syncState
	*fakeapi.Script
	clock *testingclock.FakeClock
}

func newBench(t *testing.T, d *appsv1.Deployment, sets ...*appsv1.ReplicaSet) *bench {
	t.Helper()
	script, clk := fakeapi.NewScript(t, sets...), testingclock.NewFakeClock(now)
	fakeapi.NoError(t, script.Tracker().Add(d.DeepCopy()))
	base := controller.Base{
		Client: script, Caches: caches.New(script, caches.Config{Name: t.Name()}), Clock: clk, Metrics: prometheus.NewRegistry(),
		Recorder: func(string) record.EventRecorder { return script.Recorder },
	}
	c := fakeapi.Must(newController(Config{TerminatingReplicas: true}, base))
	c.baseline.Read(t.Context())
	st := c.states.For(cache.MetaObjectToName(d), d.UID)
	work := syncState{
		key: cache.MetaObjectToName(d), d: d, selector: fakeapi.Must(selectors.ParseSelector(d.Spec.Selector)), now: now, sets: sets,
		expectations: &st.expectations, memory: &st.memory,
	}
	c.loader.Cached = func(t syncState) syncState { return t }
	return &bench{c, work, script, clk}
}

// run runs a sync as if the caches showed all writes.
func (b *bench) run(ctx context.Context) (controller.Result, error) {
	b.expectations.barrier = controller.ConsistencyBarrier{}
	result, err := b.sync(ctx, b.syncState)
	if errors.Is(err, controller.ErrOutdated) { // as a Loop
		return controller.Result{RequeueAfter: controller.ConsistencyRecheck}, nil
	}
	return result, err
}

// mustRun runs a sync without an error and returns the time until the next.
func (b *bench) mustRun(t *testing.T) time.Duration {
	t.Helper()
	result, err := b.run(t.Context())
	fakeapi.NoError(t, err)
	return result.RequeueAfter
}

// owned returns a ReplicaSet of newDeployment as the cache holds it, with a template.
func owned(d *appsv1.Deployment, image string, s replicaSet) *appsv1.ReplicaSet {
	rs := s.rs
	rs.UID, rs.ResourceVersion = types.UID("uid of "+rs.Name), "5"
	rs.Labels = map[string]string{"app": "web"}
	rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, ownerKind)}
	rs.Spec.Selector, rs.Spec.Template = d.Spec.Selector, newTemplate(image)
	return rs
}

// errBroken has an unknown outcome.
var errBroken = apierrors.NewTimeoutError("etcd is slow", 0)

func TestMain(m *testing.M) { faket.Main(m) }
