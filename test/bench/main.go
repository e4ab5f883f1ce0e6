package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/klog/v2"

	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	exitInterrupted = 130
	turnTimeout     = 20 * time.Minute
)

// options are the flags.
type options struct {
	scenarios, contestants, ours, upstream, logs string
	runs                                         int
	list, long, check                            bool
}

var errMissed = errors.New("a target was missed or a turn failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// client-go logs requests that end with a turn. Errors that matter are returned.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	err := runBench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case ctx.Err() != nil:
		os.Exit(exitInterrupted)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string, usage io.Writer) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.scenarios, "scenarios", "", "comma-separated names or shell `patterns` of the scenarios to run (default all that do not take long)")
	f.StringVar(&o.contestants, "contestants", "", "comma-separated names or shell `patterns` of the contestants to run (default all)")
	f.IntVar(&o.runs, "runs", 3, "turns of each contestant; some scenarios need fewer")
	f.BoolVar(&o.list, "list", false, "list the scenarios and do nothing")
	f.BoolVar(&o.long, "long", false, "run scenarios that take long, too")
	f.BoolVar(&o.check, "check", false, "exit with 1 if a target is missed or a turn fails")
	f.StringVar(&o.ours, "ours", "", "`path` of controller-manager (default that in bin/)")
	f.StringVar(&o.upstream, "upstream", "", "`path` of kube-controller-manager (default that in bin/)")
	f.StringVar(&o.logs, "keep-logs", "", "`folder` to keep what the managers print in")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.runs < 1 {
		return o, fmt.Errorf("unexpected arguments %q, or -runs is less than 1", f.Args())
	}
	return o, nil
}

func runBench(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parseFlags(args, progress)
	if err != nil {
		return err
	}
	if o.list {
		return listScenarios(out)
	}
	set := settings{programs: map[string]string{oursProgram: o.ours, upstreamProgram: o.upstream}, logs: o.logs}
	for name, given := range set.programs {
		if given == "" {
			set.programs[name], err = controlplane.Binary(name)
		} else {
			_, err = os.Stat(given)
		}
		if err != nil {
			return err
		}
	}
	if o.logs != "" {
		if err := os.MkdirAll(o.logs, 0o750); err != nil {
			return err
		}
	}
	wanted := selectScenarios(scenarios, o)
	if len(wanted) == 0 {
		return fmt.Errorf("no scenario is named %q with contestants %q; -list shows all", o.scenarios, o.contestants)
	}
	load, _ := os.ReadFile("/proc/loadavg") // for information only
	fmt.Fprintf(out, "%d cores, %s, load before the start %.4s\n", runtime.NumCPU(), runtime.Version(), load)
	good := true
	for _, s := range wanted {
		values := runScenario(ctx, s, set, o.runs, progress)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		good = values.report(out) && good
	}
	if o.check && !good {
		return errMissed
	}
	return nil
}

func listScenarios(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, s := range scenarios {
		names := make([]string, len(s.contestants))
		for i, c := range s.contestants {
			names[i] = c.name
		}
		about := s.about
		if s.long {
			about += " (long)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.name, about, strings.Join(names, " | "))
	}
	return w.Flush()
}

// selectScenarios returns the scenarios and contestants that the flags name. A scenario that takes long is selected by
// its full name or with -long.
func selectScenarios(all []scenario, o options) (wanted []scenario) {
	for _, s := range all {
		exact := slices.Contains(strings.Split(o.scenarios, ","), s.name)
		if exact || matchesAny(o.scenarios, s.name) && (o.long || !s.long) {
			if n := len(s.contestants); n > 1 {
				s.peer = s.contestants[n-1].name
			}
			s.contestants = slices.DeleteFunc(slices.Clone(s.contestants), func(c contestant) bool { return !matchesAny(o.contestants, c.name) })
			if len(s.contestants) > 0 {
				wanted = append(wanted, s)
			}
		}
	}
	return wanted
}

func matchesAny(patterns, name string) bool {
	return patterns == "" || slices.ContainsFunc(strings.Split(patterns, ","), func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // a bad pattern matches nothing
		return ok
	})
}

// runScenario measures each contestant once per run, so that a change of the machine's speed affects all contestants.
func runScenario(ctx context.Context, s scenario, set settings, runs int, progress io.Writer) *results {
	values := &results{scenario: s, values: map[key][]float64{}}
	var r *rig
	if s.maxRuns > 0 {
		runs = min(runs, s.maxRuns)
	}
	for run := 1; run <= runs && ctx.Err() == nil; run++ {
		for _, c := range s.contestants {
			fmt.Fprintf(progress, "run %d: %s, %s:", run, s.name, c.name)
			if r == nil {
				r = &rig{settings: set, scenario: s}
			}
			readings, err := r.takeTurn(ctx, fmt.Sprintf("%s-%s-%d", s.name, c.name, run), c)
			if err != nil {
				fmt.Fprintln(progress, " FAILED:", err)
				values.failures++
			}
			for _, reading := range readings {
				fmt.Fprintf(progress, " %s %s %s;", reading.metric, formatNumber(reading.value), reading.unit)
			}
			fmt.Fprintln(progress)
			values.add(c.name, readings)
			if !s.shared || err != nil {
				r = r.stop(progress)
			}
		}
	}
	r.stop(progress)
	return values
}

// takeTurn measures a contestant. The first turn of a rig starts the control plane.
func (r *rig) takeTurn(ctx context.Context, label string, c contestant) (readings []reading, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTimeout, fmt.Errorf("turn is not done within %v", turnTimeout))
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	r.label, r.abort = label, abort
	err = must.Catch(func() {
		if r.cluster == nil {
			r.setUp(ctx)
		}
		readings = r.scenario.measure(ctx, r, c)
	})
	return readings, errors.Join(err, r.stopManagers())
}
