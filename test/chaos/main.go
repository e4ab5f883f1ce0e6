package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"minikcm/test/controlplane"
	"minikcm/test/must"
)

// options are the flags.
type options struct {
	seed                uint64
	length, rest        time.Duration
	managers            int
	manager, logs, only string
	verbose             bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// client-go logs broken connections.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())
	o, err := parseFlags(os.Args[1:])
	if err == nil {
		err = runChaos(ctx, o)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (o options, err error) {
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.Uint64Var(&o.seed, "seed", 1, "number that everything is drawn from")
	f.DurationVar(&o.length, "for", 2*time.Minute, "how long the chaos lasts")
	f.DurationVar(&o.rest, "rest", 90*time.Second, "how long the cluster may take to come to rest afterwards; the leader of a new term waits 40s for a missing node")
	f.IntVar(&o.managers, "managers", 3, "processes that compete for the lease")
	f.StringVar(&o.manager, "manager", "", "`path` of the manager's program (default that in bin/)")
	f.StringVar(&o.logs, "logs", "", "`folder` to keep what the managers print in")
	f.StringVar(&o.only, "only", "", "comma-separated `faults` to draw from (default a mix drawn from the seed); none for none")
	f.BoolVar(&o.verbose, "v", false, "print everything that is done")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.managers < 1 || o.managers > 9 {
		return o, fmt.Errorf("unexpected arguments %q, or -managers not within 1 and 9", f.Args())
	}
	for name := range strings.SplitSeq(o.only, ",") {
		if name != "" && name != "none" && !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name }) {
			return o, fmt.Errorf("no fault is named %q", name)
		}
	}
	if o.manager == "" {
		o.manager, err = controlplane.Binary("controller-manager")
	}
	return o, err
}

func runChaos(ctx context.Context, o options) error {
	r := newRig(o)
	defer r.tearDown()
	if err := must.Catch(func() {
		r.setUp(ctx)
		r.printLine("seed %d, namespace grace %s: a calm start", o.seed, r.namespaceGrace)
		w := newWorkload(r)
		w.createObjects(ctx)
		before := r.awaitCalm(ctx)
		p := r.drawSchedule()
		r.printLine("chaos for %v: %d faults of %v", o.length, len(p.steps), p.kinds)
		r.runSchedule(ctx, w, p)
		r.printLine("healing")
		r.healAll(ctx, w)
		r.printLine("quiet")
		r.judgeRest(ctx, before)
		r.printLine("judging what happened")
		r.judgeHistory()
		r.judgeLogs()
	}); err != nil {
		return err
	}
	return r.report()
}
