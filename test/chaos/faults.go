package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
	"minikcm/test/must"
)

// kind is a kind of fault. begin returns a function that ends the fault, or nil.
type kind struct {
	name    string
	longest time.Duration
	begin   func(ctx context.Context, f *fault) (end func())
}

type fault struct {
	*rig
	slot *slot
	draw *rand.Rand // of this fault alone
}

var leaseKey = client.ObjectKey{Namespace: "kube-system", Name: "controller-manager"}

var watched = []string{"pods", "replicasets", "nodes", "namespaces", "leases"}

// The order is fixed, because the schedule is drawn from kinds.
var kinds = []kind{
	{"lost-answers", 15 * time.Second, injectRule(func(*fault) (faults.Match, faults.Fault) {
		return faults.On(faults.Writes, ""), faults.DropAnswer()
	})},
	{"lost-pods", 15 * time.Second, losePods},
	{"slow-answers", 15 * time.Second, injectRule(func(f *fault) (faults.Match, faults.Fault) {
		return faults.Match{When: func(r *http.Request) bool { return r.URL.Query().Get("watch") == "" }}, faults.DelayAnswer(f.drawTime(3 * time.Second))
	})},
	{"refusals", 15 * time.Second, injectRule(func(f *fault) (faults.Match, faults.Fault) {
		code := drawFrom(f.draw, 409, 429, 500, 503, 504)
		switch code {
		case http.StatusTooManyRequests:
			return faults.Match{}, faults.RefuseRetryAfter(code, time.Second)
		case http.StatusConflict:
			return faults.On("update,patch,delete", ""), faults.Refuse(code)
		}
		return faults.Match{}, faults.Refuse(code)
	})},
	{"gone", 5 * time.Second, expireWatches},
	{"frozen-watches", 25 * time.Second, freezeWatches},
	{"slow-watches", 20 * time.Second, slowWatches},
	{"cut-watches", 5 * time.Second, cutWatches},
	{"idle-cuts", 40 * time.Second, cutIdleWatches},
	{"bad-gateway", 15 * time.Second, beBadGateway},
	{"resets", 5 * time.Second, resetConnections},
	{"partition", 12 * time.Second, cutOff},
	{"kill", 4 * time.Second, restartManager(syscall.SIGKILL)},
	{"terminate", 4 * time.Second, restartManager(syscall.SIGTERM)},
	{"stop", 10 * time.Second, stopManager},
	{"lease", 2 * time.Second, editLease},
	{"compaction", time.Second, compactEtcd},
	{"api-restart", 3 * time.Second, interruptServer("restarts", (*controlplane.Cluster).RestartAPIServer, nil)},
	{"api-down", 20 * time.Second, interruptServer("is killed", (*controlplane.Cluster).KillAPIServer, (*controlplane.Cluster).StartAPIServer)},
	{"api-pause", 8 * time.Second, interruptServer("stands still", (*controlplane.Cluster).PauseAPIServer, (*controlplane.Cluster).ResumeAPIServer)},
	{"slow-admission", 20 * time.Second, disturbAdmission(func(f *fault, hook *controlplane.Admission) string {
		delay := f.drawTime(8 * time.Second)
		hook.Delay(delay)
		return "takes " + delay.String()
	})},
	{"hung-admission", 20 * time.Second, disturbAdmission(func(_ *fault, hook *controlplane.Admission) string { hook.Hang(); return "hangs" })},
	{"broken-admission", 15 * time.Second, disturbAdmission(func(_ *fault, hook *controlplane.Admission) string { hook.Break(); return "answers 500" })},
}

// mostOften limits the faults of a kind.
var mostOften = map[string]int{"api-restart": 1, "api-down": 1, "api-pause": 1, "compaction": 2}

type step struct {
	at, lasts time.Duration
	kind      kind
	slot      int
	seed      uint64
}

type plan struct {
	kinds []string
	steps []step
}

func (r *rig) drawSchedule() (p plan) {
	draw := r.newRandom("faults")
	var chosen []kind
	for _, k := range kinds {
		lot := draw.IntN(2) == 0
		if r.options.only == "" && lot || slices.Contains(strings.Split(r.options.only, ","), k.name) {
			chosen = append(chosen, k)
			p.kinds = append(p.kinds, k.name)
		}
	}
	used := map[string]int{}
	pace := 500 + draw.IntN(4000)
	for at := time.Duration(0); len(chosen) > 0 && at < r.options.length-2*time.Second; {
		k := chosen[draw.IntN(len(chosen))]
		s := step{
			at: at, kind: k, slot: draw.IntN(r.options.managers), seed: draw.Uint64(),
			lasts: min(k.longest/10+time.Duration(draw.Int64N(int64(k.longest))), r.options.length-at),
		}
		at += time.Duration(100+draw.IntN(pace)) * time.Millisecond
		if most, limited := mostOften[k.name]; limited && used[k.name] >= most {
			continue
		}
		used[k.name]++
		p.steps = append(p.steps, s)
	}
	return p
}

func (r *rig) runSchedule(ctx context.Context, w *workload, p plan) {
	ctx, cancel := context.WithTimeout(ctx, r.options.length)
	defer cancel()
	begin := time.Now()
	var all sync.WaitGroup
	all.Go(func() { w.run(ctx) })
	for _, s := range p.steps {
		all.Go(func() {
			if !sleep(ctx, time.Until(begin.Add(s.at))) {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, s.lasts)
			defer cancel()
			f := &fault{rig: r, slot: r.slots[s.slot], draw: rand.New(rand.NewPCG(s.seed, 0))}
			if err := must.Catch(func() {
				if end := s.kind.begin(ctx, f); end != nil {
					<-ctx.Done()
					end()
				}
			}); err != nil {
				r.note(f.slot.name, "fault %s: %v", s.kind.name, err)
			}
		})
	}
	all.Wait()
}

// healAll ends all faults and lifts all blocks of the user.
func (r *rig) healAll(ctx context.Context, w *workload) {
	for _, s := range r.slots {
		s.proxy.Clear()
		must.Succeed(s.proxy.Restore())
		s.startProcess()
	}
	for {
		err := must.Catch(func() { w.liftBlocks(ctx) })
		if err == nil {
			break
		}
		if !sleep(ctx, time.Second) {
			must.Succeed(err)
		}
	}
	sleep(ctx, time.Second) // the histories may lack the latest changes
	w.unpinAll(ctx)
}

func drawFrom[T any](draw *rand.Rand, choices ...T) T { return choices[draw.IntN(len(choices))] }

// drawTime draws a time of some milliseconds up to d.
func (f *fault) drawTime(d time.Duration) time.Duration {
	return time.Duration(f.draw.Int64N(int64(d)/1e6)+1) * time.Millisecond
}

func injectRule(make func(*fault) (faults.Match, faults.Fault)) func(context.Context, *fault) func() {
	return func(_ context.Context, f *fault) func() {
		match, what := make(f)
		chance := drawFrom(f.draw, 0.2, 0.5, 0.8)
		f.note(f.slot.name, "%.0f %% of %+v: %+v", chance*100, match, what)
		return f.slot.proxy.Inject(match, what, faults.Chance(chance)).Remove
	}
}

func losePods(_ context.Context, f *fault) func() {
	f.note(f.slot.name, "half of the answers about pods are lost, the watch of pods stands still")
	lost := f.slot.proxy.Inject(faults.On("create,delete", "pods"), faults.DropAnswer(), faults.Chance(0.5))
	frozen := f.slot.proxy.FreezeWatches(faults.Watches("pods"))
	return func() { frozen.Thaw(); lost.Remove() }
}

func (f *fault) drawWatches() (faults.Match, string) {
	if i := f.draw.IntN(len(watched) + 2); i < len(watched) {
		return faults.Watches(watched[i]), watched[i]
	}
	return faults.Watches(), "everything"
}

func freezeWatches(_ context.Context, f *fault) func() {
	match, what := f.drawWatches()
	frozen, cut := f.slot.proxy.FreezeWatches(match), f.draw.IntN(2) == 0
	f.note(f.slot.name, "watches of %s stand still", what)
	return func() {
		if cut {
			frozen.Cut()
		} else {
			frozen.Thaw()
		}
		f.note(f.slot.name, "watches of %s go on, cut: %v", what, cut)
	}
}

func slowWatches(_ context.Context, f *fault) func() {
	match, what := f.drawWatches()
	lag := f.drawTime(8 * time.Second)
	f.note(f.slot.name, "watches of %s lag by %v", what, lag)
	return f.slot.proxy.SlowWatches(match, lag).Thaw
}

func cutWatches(_ context.Context, f *fault) func() {
	match, what := f.drawWatches()
	f.note(f.slot.name, "watches of %s are cut", what)
	f.slot.proxy.CutWatches(match)
	return nil
}

func expireWatches(_ context.Context, f *fault) func() {
	match, what := f.drawWatches()
	f.note(f.slot.name, "watches of %s are gone (410)", what)
	refused := f.slot.proxy.Inject(match, faults.Refuse(http.StatusGone))
	f.slot.proxy.CutWatches(match)
	return refused.Remove
}

func cutIdleWatches(_ context.Context, f *fault) func() {
	match, what := f.drawWatches()
	idle := time.Second + f.drawTime(5*time.Second)
	f.note(f.slot.name, "watches of %s are cut when they are idle for %v", what, idle)
	return f.slot.proxy.CutIdleWatches(match, idle).Thaw
}

// beBadGateway simulates a load balancer that has lost all servers: for watches that continue, for streaming lists, or
// for every request.
func beBadGateway(_ context.Context, f *fault) func() {
	code := drawFrom(f.draw, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	refused, what, removeExpired := faults.Match{}, "every request", func() {}
	switch f.draw.IntN(3) {
	case 0:
		refused, what = faults.Rewatches(), "watches that go on"
	case 1:
		refused, what = faults.StreamingLists(), "streaming lists, and 410 to watches that go on"
		removeExpired = f.slot.proxy.Inject(faults.Rewatches(), faults.Refuse(http.StatusGone)).Remove
	}
	f.note(f.slot.name, "a load balancer answers %d to %s, all watches end", code, what)
	rule := f.slot.proxy.Inject(refused, faults.BadGateway(code))
	f.slot.proxy.CutWatches(faults.Watches())
	return func() { rule.Remove(); removeExpired() }
}

func resetConnections(ctx context.Context, f *fault) func() {
	for ok := true; ok; ok = sleep(ctx, f.drawTime(2*time.Second)) {
		f.note(f.slot.name, "connections reset")
		f.slot.proxy.CutConnections()
	}
	return nil
}

func cutOff(_ context.Context, f *fault) func() {
	how := drawFrom(f.draw, faults.Refused, faults.BlackHole, faults.Partition)
	f.slot.troubled.Lock()
	f.note(f.slot.name, "cut off (%d)", how)
	began := time.Now()
	err := f.slot.proxy.Outage(how)
	return func() {
		defer f.slot.troubled.Unlock()
		err := errors.Join(err, f.slot.proxy.Restore())
		f.slot.addUnreachable(span{began, time.Now().Add(2 * time.Second)})
		f.note(f.slot.name, "reachable again")
		must.Succeed(err)
	}
}

func restartManager(signal syscall.Signal) func(context.Context, *fault) func() {
	return func(_ context.Context, f *fault) func() {
		f.slot.troubled.Lock()
		f.note(f.slot.name, "%v", signal)
		err := must.Catch(func() { f.slot.endProcess(signal, 30*time.Second) })
		return func() {
			defer f.slot.troubled.Unlock()
			must.Succeed(err)
			f.note(f.slot.name, "started again")
			f.slot.startProcess()
		}
	}
}

func stopManager(_ context.Context, f *fault) func() {
	f.slot.troubled.Lock()
	l := f.slot.runningLife()
	if l == nil {
		f.slot.troubled.Unlock()
		return nil
	}
	f.note(f.slot.name, "SIGSTOP")
	err := l.Signal(syscall.SIGSTOP)
	return func() {
		defer f.slot.troubled.Unlock()
		f.note(f.slot.name, "SIGCONT")
		must.Succeed(errors.Join(err, l.Signal(syscall.SIGCONT)))
	}
}

func editLease(ctx context.Context, f *fault) func() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	var lease coordinationv1.Lease
	if client.IgnoreNotFound(f.client.Get(ctx, leaseKey, &lease)) != nil || lease.Name == "" {
		return nil
	}
	s, now := &lease.Spec, time.Now()
	edit := drawFrom(f.draw, "deleted", "stolen", "emptied", "released in another's name", "dated far ahead", "dated far back")
	f.note("", "Lease %s", edit)
	switch edit {
	case "deleted":
		must.Succeed(client.IgnoreNotFound(f.client.Delete(ctx, &lease)))
		return nil
	case "stolen":
		s.HolderIdentity, s.RenewTime, s.LeaseDurationSeconds = new("thief"), new(metav1.NowMicro()), new(int32(3))
	case "emptied":
		*s = coordinationv1.LeaseSpec{}
	case "released in another's name":
		s.HolderIdentity = new("")
	case "dated far ahead":
		s.RenewTime = new(metav1.NewMicroTime(now.Add(240 * time.Hour)))
	case "dated far back":
		s.RenewTime = new(metav1.NewMicroTime(now.Add(-240 * time.Hour)))
	}
	must.Succeed(f.client.Update(ctx, &lease))
	return nil
}

// compactEtcd uses the JSON gateway.
func compactEtcd(ctx context.Context, f *fault) func() {
	var list corev1.NamespaceList
	if f.client.List(ctx, &list, client.Limit(1)) != nil {
		return nil // the API server is away
	}
	f.note("", "etcd compacted at %s", list.ResourceVersion)
	body := strings.NewReader(fmt.Sprintf(`{"revision":%q}`, list.ResourceVersion))
	answer := must.Get(http.Post(f.cluster.EtcdURL()+"/v3/kv/compaction", "application/json", body))
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		must.Succeed(fmt.Errorf("compact etcd: %s", answer.Status))
	}
	return nil
}

func interruptServer(what string, begin, end func(*controlplane.Cluster) error) func(context.Context, *fault) func() {
	return func(_ context.Context, f *fault) func() {
		over := f.away.begin()
		f.note("", "API server %s", what)
		err := begin(f.cluster)
		finish := func() {
			defer over()
			if end != nil && err == nil {
				err = end(f.cluster)
			}
			f.note("", "API server is back")
			must.Succeed(err)
		}
		if end == nil {
			finish()
			return nil
		}
		return finish
	}
}

// disturbAdmission returns a fault of a webhook for writes of managers to pods. Kubelets and the user do not meet the
// webhook.
func disturbAdmission(how func(*fault, *controlplane.Admission) string) func(context.Context, *fault) func() {
	return func(ctx context.Context, f *fault) func() {
		verbs := drawFrom(f.draw, []string{"CREATE"}, []string{"DELETE"}, []string{"CREATE", "DELETE"})
		hook := controlplane.Webhook{
			Operations: verbs, Resource: "pods", Users: "manager-", TimeoutSeconds: int32(1 + f.draw.IntN(12)), Ignore: f.draw.IntN(2) == 0,
		}
		over := f.slowed.begin()
		running, err := f.cluster.StartWebhook(ctx, hook)
		if err != nil {
			over()
			return nil // the API server is away
		}
		f.note("", "admission of %v by managers %s, timeout %d s, ignored: %v", verbs, how(f, running), hook.TimeoutSeconds, hook.Ignore)
		return func() {
			defer over()
			f.note("", "admission is as before")
			must.Succeed(running.Stop())
		}
	}
}
