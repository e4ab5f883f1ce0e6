package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"minikcm/test/controlplane"
)

// options are the flags.
type options struct {
	seed     uint64
	length   time.Duration
	rest     time.Duration
	managers int
	manager  string
	logs     string
	verbose  bool
	only     string
}

var errViolated = errors.New("a promise was broken")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// client-go logs broken connections.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())
	if err := run(ctx); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.Uint64Var(&o.seed, "seed", 1, "number that everything is drawn from")
	f.DurationVar(&o.length, "for", 2*time.Minute, "how long the chaos lasts")
	f.DurationVar(&o.rest, "rest", time.Minute, "how long the cluster may take to come to rest afterwards")
	f.IntVar(&o.managers, "managers", 3, "processes that compete for the lease")
	f.StringVar(&o.manager, "manager", "", "`path` of the manager's program (default that in bin/)")
	f.StringVar(&o.logs, "logs", "", "`folder` to keep what the managers print in")
	f.StringVar(&o.only, "only", "", "comma-separated `faults` to draw from (default a mix drawn from the seed); none for none")
	f.BoolVar(&o.verbose, "v", false, "tell of everything that is done")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.managers < 1 || o.managers > 9 {
		return o, fmt.Errorf("unexpected arguments %q, or -managers not within 1 and 9", f.Args())
	}
	var err error
	if o.manager == "" {
		o.manager, err = controlplane.Binary("controller-manager")
	}
	return o, err
}

func run(ctx context.Context) error {
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	r, err := raise(ctx, o)
	defer r.lower()
	if err != nil {
		return err
	}
	r.say("seed %d, namespace grace %s: a calm start", o.seed, r.namespaceGrace)
	w := newWorkload(r)
	if err := w.begin(ctx); err != nil {
		return err
	}
	before, err := r.calm(ctx)
	if err != nil {
		return err
	}
	plan := r.schedule()
	r.say("chaos for %v: %d faults of %v", o.length, len(plan.steps), plan.kinds)
	r.unleash(ctx, w, plan)
	r.say("healing")
	if err := r.heal(ctx, w); err != nil {
		return err
	}
	r.say("quiet")
	r.judgeRest(ctx, before)
	r.say("judging what happened")
	r.judgeHistory()
	r.judgeLogs()
	return r.report()
}
