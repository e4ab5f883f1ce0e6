package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"syscall"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

type kind struct {
	name    string
	longest time.Duration
	apply   func(ctx context.Context, f *fault) error
}

type fault struct {
	*rig
	slot *slot
	draw *rand.Rand // of this fault alone
}

const (
	leaseName  = "controller-manager"
	leaseSpace = "kube-system"
)

var watched = []string{"pods", "replicasets", "nodes", "namespaces", "leases"}

// The order is fixed, because the schedule is drawn from kinds.
var kinds = []kind{
	{"lost-answers", 15 * time.Second, rule(func(f *fault) (faults.Match, faults.Fault) {
		return faults.On(faults.Writes, ""), faults.DropAnswer()
	})},
	{"lost-pods", 15 * time.Second, lostPods},
	{"slow-answers", 15 * time.Second, rule(func(f *fault) (faults.Match, faults.Fault) {
		return faults.Match{When: notWatch}, faults.DelayAnswer(f.upTo(3 * time.Second))
	})},
	{"refusals", 15 * time.Second, rule(func(f *fault) (faults.Match, faults.Fault) {
		code, _ := pick([]int{409, 429, 500, 503, 504}, f.draw)
		switch code {
		case http.StatusTooManyRequests:
			return faults.Match{}, faults.RefuseRetryAfter(code, time.Second)
		case http.StatusConflict:
			return faults.On("update,patch,delete", ""), faults.Refuse(code)
		}
		return faults.Match{}, faults.Refuse(code)
	})},
	{"gone", 5 * time.Second, watchesGone},
	{"frozen-watches", 25 * time.Second, frozenWatches},
	{"slow-watches", 20 * time.Second, slowWatches},
	{"cut-watches", 5 * time.Second, cutWatches},
	{"idle-cuts", 40 * time.Second, idleCuts},
	{"bad-gateway", 15 * time.Second, badGateway},
	{"resets", 5 * time.Second, resets},
	{"partition", 12 * time.Second, partition},
	{"kill", 4 * time.Second, restart(syscall.SIGKILL)},
	{"terminate", 4 * time.Second, restart(syscall.SIGTERM)},
	{"stop", 10 * time.Second, stop},
	{"lease", 2 * time.Second, meddle},
	{"compaction", time.Second, compact},
	{"api-restart", 3 * time.Second, apiRestart},
	{"api-down", 20 * time.Second, apiDown},
	{"api-pause", 8 * time.Second, apiPause},
	{"slow-admission", 20 * time.Second, admission(func(f *fault, hook *controlplane.Admission) string {
		delay := f.upTo(8 * time.Second)
		hook.Delay(delay)
		return "takes " + delay.String()
	})},
	{"hung-admission", 20 * time.Second, admission(func(_ *fault, hook *controlplane.Admission) string {
		hook.Hang()
		return "hangs"
	})},
	{"broken-admission", 15 * time.Second, admission(func(_ *fault, hook *controlplane.Admission) string {
		hook.Break()
		return "answers 500"
	})},
}

// upTo draws a time of some milliseconds up to d.
func (f *fault) upTo(d time.Duration) time.Duration {
	return time.Duration(f.draw.Int64N(int64(d)/1e6)+1) * time.Millisecond
}

func notWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "" }

func rule(make func(*fault) (faults.Match, faults.Fault)) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		match, what := make(f)
		chance := []float64{0.2, 0.5, 0.8}[f.draw.IntN(3)]
		f.note(f.slot.name, "%.0f %% of %+v: %+v", chance*100, match, what)
		defer f.slot.proxy.Inject(match, what, faults.Chance(chance)).Remove()
		<-ctx.Done()
		return nil
	}
}

func lostPods(ctx context.Context, f *fault) error {
	f.note(f.slot.name, "half of the answers about pods are lost, the watch of pods stands still")
	defer f.slot.proxy.Inject(faults.On("create,delete", "pods"), faults.DropAnswer(), faults.Chance(0.5)).Remove()
	defer f.slot.proxy.FreezeWatches(faults.Watches("pods")).Thaw()
	<-ctx.Done()
	return nil
}

func (f *fault) someWatches() (faults.Match, string) {
	if i := f.draw.IntN(len(watched) + 2); i < len(watched) {
		return faults.Watches(watched[i]), watched[i]
	}
	return faults.Watches(), "everything"
}

func frozenWatches(ctx context.Context, f *fault) error {
	match, what := f.someWatches()
	frozen, cut := f.slot.proxy.FreezeWatches(match), f.draw.IntN(2) == 0
	f.note(f.slot.name, "watches of %s stand still", what)
	<-ctx.Done()
	if cut {
		frozen.Cut()
	} else {
		frozen.Thaw()
	}
	f.note(f.slot.name, "watches of %s go on, cut: %v", what, cut)
	return nil
}

func slowWatches(ctx context.Context, f *fault) error {
	match, what := f.someWatches()
	lag := f.upTo(8 * time.Second)
	f.note(f.slot.name, "watches of %s lag by %v", what, lag)
	defer f.slot.proxy.SlowWatches(match, lag).Thaw()
	<-ctx.Done()
	return nil
}

func cutWatches(_ context.Context, f *fault) error {
	match, what := f.someWatches()
	f.note(f.slot.name, "watches of %s are cut", what)
	f.slot.proxy.CutWatches(match)
	return nil
}

func watchesGone(ctx context.Context, f *fault) error {
	match, what := f.someWatches()
	f.note(f.slot.name, "watches of %s are gone (410)", what)
	defer f.slot.proxy.Inject(match, faults.Refuse(http.StatusGone)).Remove()
	f.slot.proxy.CutWatches(match)
	<-ctx.Done()
	return nil
}

func idleCuts(ctx context.Context, f *fault) error {
	match, what := f.someWatches()
	idle := time.Second + f.upTo(5*time.Second)
	f.note(f.slot.name, "watches of %s are cut when they are idle for %v", what, idle)
	defer f.slot.proxy.CutIdleWatches(match, idle).Thaw()
	<-ctx.Done()
	return nil
}

// badGateway simulates a load balancer that has lost all servers: for watches that continue, for streaming lists, or
// for every request.
func badGateway(ctx context.Context, f *fault) error {
	code, _ := pick([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, f.draw)
	refused, what := faults.Match{}, "every request"
	switch f.draw.IntN(3) {
	case 0:
		refused, what = faults.Rewatches(), "watches that go on"
	case 1:
		refused, what = faults.StreamingLists(), "streaming lists, and 410 to watches that go on"
		defer f.slot.proxy.Inject(faults.Rewatches(), faults.Refuse(http.StatusGone)).Remove()
	}
	f.note(f.slot.name, "a load balancer answers %d to %s, all watches end", code, what)
	defer f.slot.proxy.Inject(refused, faults.BadGateway(code)).Remove()
	f.slot.proxy.CutWatches(faults.Watches())
	<-ctx.Done()
	return nil
}

func resets(ctx context.Context, f *fault) error {
	for {
		f.note(f.slot.name, "connections reset")
		f.slot.proxy.CutConnections()
		if !pause(ctx, f.upTo(2*time.Second)) {
			return nil
		}
	}
}

func partition(ctx context.Context, f *fault) error {
	how, _ := pick([]faults.Outage{faults.Refused, faults.BlackHole, faults.Partition}, f.draw)
	f.slot.troubled.Lock()
	defer f.slot.troubled.Unlock()
	f.note(f.slot.name, "cut off (%d)", how)
	began := time.Now()
	if err := f.slot.proxy.Outage(how); err != nil {
		return err
	}
	<-ctx.Done()
	err := f.slot.proxy.Restore()
	f.slot.cutOff(span{began, time.Now().Add(2 * time.Second)})
	f.note(f.slot.name, "reachable again")
	return err
}

func restart(signal syscall.Signal) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		f.slot.troubled.Lock()
		defer f.slot.troubled.Unlock()
		f.note(f.slot.name, "%v", signal)
		if err := f.slot.end(signal, 30*time.Second); err != nil {
			return err
		}
		<-ctx.Done()
		f.note(f.slot.name, "started again")
		return f.slot.start()
	}
}

func stop(ctx context.Context, f *fault) error {
	f.slot.troubled.Lock()
	defer f.slot.troubled.Unlock()
	l := f.slot.running()
	if l == nil {
		return nil
	}
	f.note(f.slot.name, "SIGSTOP")
	if err := l.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	<-ctx.Done()
	f.note(f.slot.name, "SIGCONT")
	return l.Signal(syscall.SIGCONT)
}
