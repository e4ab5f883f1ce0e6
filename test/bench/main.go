package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/klog/v2"

	"minikcm/test/controlplane"
)

const exitInterrupted = 130

var defaultControllers = strings.Join([]string{
	replicaSetController, nodeController, evictionController, podGCController, namespaceController,
}, ",")

// options are the flags.
type options struct {
	scenarios, contestants         string
	ours, upstream, logs, profiles string
	runs                           int
	list, long, check              bool
}

var errMissed = errors.New("a target was missed or a turn failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// client-go logs requests that end with a turn. Errors that matter are returned.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	case ctx.Err() != nil:
		os.Exit(exitInterrupted)
	}
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
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
	f.StringVar(&o.profiles, "profiles", "", "`folder` to keep profiles of the managers in; taking them disturbs the times")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	if f.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.runs < 1 {
		return options{}, fmt.Errorf("-runs is %d, must be at least 1", o.runs)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	if o.list {
		return list(out)
	}
	wanted, err := pick(scenarios, selection{patterns: fields(o.scenarios), long: o.long, contestants: fields(o.contestants)})
	if err != nil {
		return err
	}
	set, err := o.settings()
	if err != nil {
		return err
	}
	here := thisMachine()
	r := &runner{settings: set, progress: progress}
	stopped := r.run(ctx, turns(wanted, o.runs))
	result := report{
		Machine: here, Rows: r.results.rows(scenarios), Targets: r.results.verdicts(targets), Failures: r.failures,
	}
	if err := errors.Join(stopped, result.text(out)); err != nil {
		return err
	}
	if o.check && !result.good() {
		return errMissed
	}
	return nil
}

// settings finds the programs and makes the folders.
func (o options) settings() (settings, error) {
	s := settings{programs: map[string]string{}, controllers: defaultControllers, logs: o.logs, profiles: o.profiles}
	for program, given := range map[string]string{oursProgram: o.ours, upstreamProgram: o.upstream} {
		if given == "" {
			found, err := controlplane.Binary(program)
			if err != nil {
				return settings{}, err
			}
			given = found
		}
		if _, err := os.Stat(given); err != nil {
			return settings{}, err
		}
		s.programs[program] = given
	}
	for _, dir := range []string{o.logs, o.profiles} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return settings{}, err
		}
	}
	return s, nil
}

func list(out io.Writer) error {
	cells := [][]string{}
	for _, s := range scenarios {
		names := make([]string, len(s.contestants))
		for i, c := range s.contestants {
			names[i] = c.name
		}
		about := s.about
		if s.long {
			about += " (long)"
		}
		cells = append(cells, []string{s.name, about, strings.Join(names, " | ")})
	}
	_, err := io.WriteString(out, align(cells, "lll"))
	return err
}
