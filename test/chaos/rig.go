package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: None, users: [chaos-node]}
- {level: Request, resources: [{group: coordination.k8s.io, resources: [leases]}]}
- {level: Metadata}
`

type rig struct {
	options        options
	dir, logs      string
	namespaceGrace string
	start          time.Time

	cluster   *controlplane.Cluster
	client    client.WithWatch // the user's
	histories *histories
	kubelets  []*nodeKubelet
	slots     []*slot
	away      outages // of the API server
	slowed    outages // of admission, for managers

	lock       sync.Mutex
	diary      []entry
	violations []timed
	cleanups   []func() error
}

// entry is an action of the user or the beginning or end of a fault.
type entry struct {
	at       time.Time
	of, text string
}

func newRig(o options) *rig {
	r := &rig{options: o, logs: o.logs, start: time.Now()}
	r.namespaceGrace = []string{"0s", "1s"}[r.newRandom("namespace grace").IntN(2)]
	return r
}

func (r *rig) setUp(ctx context.Context) {
	r.dir = must.Get(os.MkdirTemp("", "minikcm-chaos-"))
	r.onTearDown(func() error { return os.RemoveAll(r.dir) })
	if r.logs == "" {
		r.logs = r.dir
	}
	must.Succeed(os.MkdirAll(r.logs, 0o750))
	r.cluster = must.Get(controlplane.Start(controlplane.Options{AuditPolicy: auditPolicy}))
	r.onTearDown(r.cluster.Stop)
	r.client = must.Get(controlplane.NewClient(r.userConfig("chaos-user")))
	nodes := must.Get(kubernetes.NewForConfig(r.userConfig("chaos-node")))

	ctx, cancel := context.WithCancel(ctx)
	var inhabitants sync.WaitGroup
	r.onTearDown(func() error { cancel(); inhabitants.Wait(); return nil })
	r.histories = newHistories(must.Get(kubernetes.NewForConfig(r.userConfig("chaos-historian"))))
	inhabitants.Go(func() { r.histories.recordAll(ctx) })
	for i := range nodeCount {
		k := &nodeKubelet{
			name: fmt.Sprintf("node-%d", i), client: nodes, pods: r.histories.pods, on: true,
			seen: map[string]time.Time{}, random: r.newRandom(fmt.Sprintf("kubelet %d", i)),
		}
		r.kubelets = append(r.kubelets, k)
		inhabitants.Go(func() { repeat(ctx, renewInterval, k.sendHeartbeat) }) // never waits for the pods
		inhabitants.Go(func() { repeat(ctx, 150*time.Millisecond, k.runPods) })
	}
	random := r.newRandom("scheduler")
	inhabitants.Go(func() {
		repeat(ctx, 100*time.Millisecond, func(ctx context.Context) { schedulePods(ctx, nodes, r.histories, random) })
	})
	for i := range r.options.managers {
		s := r.newSlot("manager-" + string(rune('a'+i)))
		r.slots = append(r.slots, s)
		r.onTearDown(func() error { return must.Catch(func() { s.endProcess(syscall.SIGKILL, time.Minute) }) })
		s.startProcess()
	}
}

func (r *rig) userConfig(user string) *rest.Config {
	c := r.cluster.ConfigFor(user, "system:masters")
	c.UserAgent = user
	return c
}

func (r *rig) onTearDown(f func() error) { r.cleanups = append(r.cleanups, f) }

func (r *rig) tearDown() {
	for _, f := range slices.Backward(r.cleanups) {
		if err := f(); err != nil {
			r.printLine("stopping: %v", err)
		}
	}
}

func (r *rig) newRandom(purpose string) *rand.Rand {
	hash := fnv.New64a()
	hash.Write([]byte(purpose))
	return rand.New(rand.NewPCG(r.options.seed, hash.Sum64()))
}

func (r *rig) printLine(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// note adds a line to the diary. of is the key of an object, the name of a slot, or "".
func (r *rig) note(of, format string, args ...any) {
	e := entry{at: time.Now(), of: of, text: fmt.Sprintf(format, args...)}
	r.lock.Lock()
	r.diary = append(r.diary, e)
	r.lock.Unlock()
	if r.options.verbose {
		r.printLine("%s %s", of, e.text)
	}
}

// repeat calls do after each interval until ctx ends.
func repeat(ctx context.Context, interval time.Duration, do func(context.Context)) {
	for sleep(ctx, interval) {
		do(ctx)
	}
}

// sleep reports whether ctx still lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// span is a stretch of time; a zero end is not yet.
type span struct{ from, to time.Time }

func (s span) overlap(from, to time.Time) time.Duration {
	if s.to.IsZero() || s.to.After(to) {
		s.to = to
	}
	if s.from.Before(from) {
		s.from = from
	}
	return max(0, s.to.Sub(s.from))
}

// outages are the times of a fault that happens once at a time.
type outages struct {
	busy  sync.Mutex
	lock  sync.Mutex
	spans []span
}

// begin waits for the end of an outage that lasts.
func (o *outages) begin() (end func()) {
	o.busy.Lock()
	o.lock.Lock()
	defer o.lock.Unlock()
	o.spans = append(o.spans, span{from: time.Now()})
	i := len(o.spans) - 1
	return func() {
		o.lock.Lock()
		defer o.lock.Unlock()
		o.spans[i].to = time.Now()
		o.busy.Unlock()
	}
}

func (o *outages) within(from, to time.Time) time.Duration {
	o.lock.Lock()
	defer o.lock.Unlock()
	var sum time.Duration
	for _, s := range o.spans {
		sum += s.overlap(from, to)
	}
	return sum
}
