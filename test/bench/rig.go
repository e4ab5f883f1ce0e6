package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
	"minikcm/test/must"
)

const (
	// benchNamespace holds the work, readyNamespace the ReplicaSets that show that a manager works.
	benchNamespace = "bench"
	readyNamespace = metav1.NamespaceDefault
	// writers is the number of concurrent requests while the API server is filled. A larger number is not faster on
	// two cores.
	writers      = 8
	pollInterval = 20 * time.Millisecond

	managerUser, leaderUser, standbyUser = "bench-manager", "bench-leader", "bench-standby"

	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: None, verbs: [watch]}
- {level: Metadata, users: [` + managerUser + "," + leaderUser + "," + standbyUser + `]}
- {level: None}
`
	// settleTime is the pause between the start of a manager and the measurement, and the wait for late requests.
	settleTime = 2 * time.Second
)

// Metrics of several scenarios.
const (
	managerCPU = "manager CPU"
	serverCPU  = "API server CPU"
	resident   = "resident"
)

// settings are the same for all turns.
type settings struct {
	programs map[string]string // paths by contestant.program
	logs     string
}

type rig struct {
	settings
	scenario scenario
	label    string // of the turn, for names of files
	abort    context.CancelCauseFunc
	cluster  *controlplane.Cluster
	client   client.WithWatch
	kube     kubernetes.Interface
	dir      string
	managers []*manager
	proxy    *faults.Proxy
	probes   int // ReplicaSets made by awaitWork so far
}

func (r *rig) setUp(ctx context.Context) {
	r.dir = must.Get(os.MkdirTemp("", "minikcm-bench-"))
	o := controlplane.Options{}
	if r.scenario.audit {
		o.AuditPolicy = auditPolicy
	}
	r.cluster = must.Get(controlplane.Start(o))
	r.client = must.Get(controlplane.NewClient(r.cluster.Config()))
	r.kube = must.Get(kubernetes.NewForConfig(r.cluster.Config()))
	r.createNamespace(ctx, benchNamespace)
	if r.scenario.setup != nil {
		r.scenario.setup(ctx, r)
	}
}

// stop returns nil, so that the next turn gets a new rig.
func (r *rig) stop(progress io.Writer) *rig {
	if r != nil && r.cluster != nil {
		if err := errors.Join(r.cluster.Stop(), os.RemoveAll(r.dir)); err != nil {
			fmt.Fprintln(progress, "stopping:", err)
		}
	}
	return nil
}

func (r *rig) create(ctx context.Context, o client.Object) { must.Succeed(r.client.Create(ctx, o)) }

func (r *rig) patch(ctx context.Context, o client.Object, patch string) {
	must.Succeed(r.client.Patch(ctx, o, client.RawPatch("application/strategic-merge-patch+json", []byte(patch))))
}

func (r *rig) createNamespace(ctx context.Context, name string) {
	r.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// objectMeta is the metadata of an object in benchNamespace.
func objectMeta(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: benchNamespace, Name: name, OwnerReferences: owners}
}

// watchFromNow watches objects of the type of list. It resumes watches that the API server ends because this program is
// a slow reader.
func (r *rig) watchFromNow(ctx context.Context, list client.ObjectList, namespace string) watch.Interface {
	must.Succeed(r.client.List(ctx, list, client.InNamespace(namespace), client.Limit(1)))
	return must.Get(watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.client.Watch(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &o})
		},
	}))
}

// awaitEvents stops the watch at the nth event of a type and returns the time of that event.
func awaitEvents(ctx context.Context, w watch.Interface, kind watch.EventType, n int) time.Time {
	defer w.Stop()
	return awaitEvent(ctx, w, func(e watch.Event) bool {
		if e.Type == kind {
			n--
		}
		return n == 0
	})
}

func awaitEvent(ctx context.Context, w watch.Interface, last func(watch.Event) bool) time.Time {
	for {
		select {
		case <-ctx.Done():
			must.Succeed(context.Cause(ctx))
		case event, open := <-w.ResultChan():
			now := time.Now()
			switch {
			case !open:
				must.Succeed(errors.New("the API server ended the watch"))
			case event.Type == watch.Error:
				must.Succeed(fmt.Errorf("watch: %w", apierrors.FromObject(event.Object)))
			case last(event):
				return now
			}
		}
	}
}

// requests returns the requests of managerUser so far that all matches accept.
func (r *rig) requests(matches ...controlplane.AuditMatch) controlplane.AuditEvents {
	return must.Get(r.cluster.ReadAuditLog(append(matches, controlplane.ByUser(managerUser))...))
}

func byLoop(names ...string) controlplane.AuditMatch {
	return func(e *auditv1.Event) bool {
		for _, name := range names {
			if strings.HasSuffix(e.UserAgent, "/"+name) && e.ObjectRef != nil && e.ObjectRef.Resource != "events" {
				return true
			}
		}
		return false
	}
}

// effort is the cost of some work: processor time until the work returned, wall time until the time it returned.
type effort struct{ wall, manager, server float64 } // seconds

func (r *rig) measureEffort(m *manager, work func() time.Time) effort {
	server := must.Get(r.cluster.APIServerPID())
	manager, api, start := cpuSeconds(m.Pid()), cpuSeconds(server), time.Now()
	end := work()
	return effort{end.Sub(start).Seconds(), cpuSeconds(m.Pid()) - manager, cpuSeconds(server) - api}
}

func (e effort) readings(wall string) []reading {
	return []reading{{wall, "s", e.wall}, {managerCPU, "s", e.manager}, {serverCPU, "s", e.server}}
}

func processStat(pid int) procfs.ProcStat { return must.Get(must.Get(procfs.NewProc(pid)).Stat()) }

func cpuSeconds(pid int) float64 { return processStat(pid).CPUTime() }

func residentMiB(m *manager) float64 {
	return float64(processStat(m.Pid()).ResidentMemory()) / (1 << 20)
}

// manager is a running contestant.
type manager struct {
	*controlplane.Process
	log      string
	expected atomic.Bool
}

func (r *rig) launch(c contestant, user string, more ...string) *manager {
	identity := r.cluster.ConfigFor(user, "system:masters")
	if r.proxy != nil && user == managerUser {
		identity = r.proxy.Config()
	}
	kubeconfig := filepath.Join(r.dir, user+".kubeconfig")
	must.Succeed(controlplane.WriteKubeconfig(kubeconfig, identity))
	controllers := commonControllers
	if r.scenario.adds != "" {
		controllers += "," + r.scenario.adds
	}
	args := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--controllers=" + controllers, "--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", must.Get(controlplane.FindPort())),
	}
	if c.program == upstreamProgram {
		args = append(args, "--use-service-account-credentials=false")
	}
	m := &manager{Process: must.Get(controlplane.Launch(r.programs[c.program], append(append(args, c.args...), more...)...))}
	if r.logs != "" {
		m.log = filepath.Join(r.logs, r.label+"-"+user+".log")
	}
	r.managers = append(r.managers, m)
	abort := r.abort
	go func() {
		<-m.Done()
		if !m.expected.Load() {
			out := m.Output()
			abort(fmt.Errorf("%s ended by itself; the end of its log:\n%s", c.program, out[max(0, len(out)-2000):]))
		}
	}()
	return m
}

// launchWorking also waits until the manager works and rests.
func (r *rig) launchWorking(ctx context.Context, c contestant, more ...string) *manager {
	m := r.launch(c, managerUser, more...)
	r.awaitWork(ctx)
	must.Pause(ctx, settleTime)
	return m
}

func (r *rig) awaitWork(ctx context.Context) {
	pods := r.watchFromNow(ctx, &corev1.PodList{}, readyNamespace)
	r.probes++
	r.create(ctx, controlplane.ReplicaSet(readyNamespace, fmt.Sprint("probe-", r.probes), 1))
	awaitEvents(ctx, pods, watch.Added, 1)
}

func (r *rig) stopManagers() error {
	var errs []error
	for _, m := range r.managers {
		m.expected.Store(true)
		errs = append(errs, m.Kill())
		if m.log != "" {
			errs = append(errs, os.WriteFile(m.log, []byte(m.Output()), 0o600))
		}
	}
	r.managers = nil
	if r.proxy != nil {
		errs = append(errs, r.proxy.Stop())
		r.proxy = nil
	}
	return errors.Join(errs...)
}

// sendSignal sends a signal that is meant to end the manager.
func (m *manager) sendSignal(signal os.Signal) {
	m.expected.Store(true)
	must.Succeed(m.Signal(signal))
}

func (m *manager) logLines() int { return strings.Count(m.Output(), "\n") }

// startProxy puts a proxy between the API server and managers that are started as managerUser from now on.
func (r *rig) startProxy() *faults.Proxy {
	r.proxy = must.Get(faults.Start(r.cluster.ConfigFor(managerUser, "system:masters")))
	return r.proxy
}
