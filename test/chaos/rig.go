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

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
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
	client    kubernetes.Interface // the user's
	dynamic   dynamic.Interface
	extension apiextensions.Interface
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

type entry struct {
	at   time.Time
	of   string
	text string
}

func raise(ctx context.Context, o options) (*rig, error) {
	r := &rig{options: o, logs: o.logs, start: time.Now()}
	r.namespaceGrace = []string{"0s", "1s"}[r.random("namespace grace").IntN(2)]
	var err error
	if r.dir, err = os.MkdirTemp("", "minikcm-chaos-"); err != nil {
		return r, err
	}
	r.onStop(func() error { return os.RemoveAll(r.dir) })
	if r.logs == "" {
		r.logs = r.dir
	} else if err := os.MkdirAll(r.logs, 0o750); err != nil {
		return r, err
	}
	if r.cluster, err = controlplane.Start(controlplane.Options{AuditPolicy: auditPolicy}); err != nil {
		return r, err
	}
	r.onStop(r.cluster.Stop)
	if r.client, err = kubernetes.NewForConfig(r.userConfig("chaos-user")); err != nil {
		return r, err
	}
	if r.dynamic, err = dynamic.NewForConfig(r.userConfig("chaos-user")); err != nil {
		return r, err
	}
	if r.extension, err = apiextensions.NewForConfig(r.userConfig("chaos-user")); err != nil {
		return r, err
	}
	return r, r.populate(ctx)
}

func (r *rig) userConfig(user string) *rest.Config {
	c := r.cluster.ConfigFor(user, "system:masters")
	c.Timeout = 0
	c.UserAgent = user
	return c
}

func (r *rig) populate(ctx context.Context) error {
	nodes, err := kubernetes.NewForConfig(r.userConfig("chaos-node"))
	if err != nil {
		return err
	}
	watcher, err := kubernetes.NewForConfig(r.userConfig("chaos-historian"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var inhabitants sync.WaitGroup
	r.onStop(func() error { cancel(); inhabitants.Wait(); return nil })
	r.histories = newHistories(watcher)
	inhabitants.Go(func() { r.histories.run(ctx) })
	for i := range nodeCount {
		k := &nodeKubelet{
			name: fmt.Sprintf("node-%d", i), client: nodes, pods: r.histories.pods, on: true,
			seen: map[string]time.Time{}, random: r.random(fmt.Sprintf("kubelet %d", i)),
		}
		r.kubelets = append(r.kubelets, k)
		inhabitants.Go(func() { k.run(ctx) })
	}
	inhabitants.Go(func() { schedule(ctx, nodes, r.histories, r.random("scheduler")) })
	for i := range r.options.managers {
		s, err := r.newSlot("manager-" + string(rune('a'+i)))
		if err != nil {
			return err
		}
		r.slots = append(r.slots, s)
		r.onStop(func() error { return s.end(syscall.SIGKILL, time.Minute) })
		if err := s.start(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) onStop(f func() error) { r.cleanups = append(r.cleanups, f) }

func (r *rig) lower() {
	for _, f := range slices.Backward(r.cleanups) {
		if err := f(); err != nil {
			r.say("stopping: %v", err)
		}
	}
}

func (r *rig) random(purpose string) *rand.Rand {
	hash := fnv.New64a()
	hash.Write([]byte(purpose))
	return rand.New(rand.NewPCG(r.options.seed, hash.Sum64()))
}

func (r *rig) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

func (r *rig) note(of, format string, args ...any) {
	e := entry{at: time.Now(), of: of, text: fmt.Sprintf(format, args...)}
	r.lock.Lock()
	r.diary = append(r.diary, e)
	r.lock.Unlock()
	if r.options.verbose {
		r.say("%s %s", of, e.text)
	}
}

type outages struct {
	lock  sync.Mutex
	spans []span
	busy  sync.Mutex
}

func (o *outages) during(f func() error) error {
	o.busy.Lock()
	defer o.busy.Unlock()
	o.lock.Lock()
	o.spans = append(o.spans, span{from: time.Now()})
	i := len(o.spans) - 1
	o.lock.Unlock()
	err := f()
	o.lock.Lock()
	defer o.lock.Unlock()
	o.spans[i].to = time.Now()
	return err
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
