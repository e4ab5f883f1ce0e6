package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	crds "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"minikcm/test/controlplane"
)

// Users of the two programs.
const (
	oursUser  = "shadow-ours"
	otherUser = "shadow-upstream"
)

// policy logs what the acting collector deletes.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, users: [` + otherUser + `], verbs: [delete]}
- {level: None}
`

// wouldSend begins the log lines of what is only observed.
const wouldSend = "Would send a request"

// settle is how long both have for what was made last.
const settle = 75 * time.Second

type options struct {
	length      time.Duration
	seed        uint64
	ours, other string
	logs        string
	qps         string
}

var errWrong = errors.New("there are false positives")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "shadow:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("shadow", flag.ContinueOnError)
	f.DurationVar(&o.length, "for", time.Hour, "how long the churn lasts")
	f.Uint64Var(&o.seed, "seed", 1, "number that the churn is drawn from")
	f.StringVar(&o.ours, "ours", "", "`path` of controller-manager (default that in bin/)")
	f.StringVar(&o.other, "upstream", "", "`path` of kube-controller-manager (default that in bin/)")
	f.StringVar(&o.qps, "upstream-qps", "100", "requests per second that the other is limited to; its collector has twice as many")
	f.StringVar(&o.logs, "logs", "", "`folder` to keep what both print in")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	for name, path := range map[string]*string{"controller-manager": &o.ours, "kube-controller-manager": &o.other} {
		if *path == "" {
			if *path, err = controlplane.Binary(name); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "minikcm-shadow-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600); err != nil {
		return err
	}
	cluster, err := controlplane.Start(controlplane.Options{APIServerArgs: map[string][]string{
		"audit-policy-file": {filepath.Join(dir, "policy.yaml")}, "audit-log-path": {log}, "audit-log-maxsize": {"100000"}, // MB
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	s := &shadow{options: o, cluster: cluster, dir: dir, record: newRecord(), begin: time.Now()}
	if err := s.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.live(ctx); err != nil {
		return err
	}
	return s.report(log)
}

// shadow is one run.
type shadow struct {
	options
	cluster     *controlplane.Cluster
	dir         string
	record      *record
	begin       time.Time
	ours, other *controlplane.Process
}

func (s *shadow) say(format string, args ...any) {
	fmt.Printf("%7.1f  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// start starts both programs: the other with the loops that make something to collect, ours with the collector alone.
func (s *shadow) start() (err error) {
	if s.other, err = s.launch(s.options.other, otherUser, "--controllers=deployment-controller,replicaset-controller,namespace-controller,garbage-collector-controller",
		"--use-service-account-credentials=false", "--kube-api-qps="+s.qps, "--kube-api-burst="+s.qps); err != nil {
		return err
	}
	s.ours, err = s.launch(s.options.ours, oursUser, "--controllers=garbagecollector", "--garbage-collector-observe-only", "--logging-format=json", "-v=2")
	return err
}

func (s *shadow) launch(program, user string, more ...string) (*controlplane.Process, error) {
	port, err := controlplane.FindPort()
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(s.dir, user+".kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, s.cluster.ConfigFor(user, "system:masters")); err != nil {
		return nil, err
	}
	return controlplane.Launch(program, append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
	}, more...)...)
}

func (s *shadow) stop() error {
	errs := []error{s.ours.Kill(), s.other.Kill()}
	if s.logs != "" {
		errs = append(errs, os.MkdirAll(s.logs, 0o755))
		for name, p := range map[string]*controlplane.Process{"ours.log": s.ours, "upstream.log": s.other} {
			errs = append(errs, os.WriteFile(filepath.Join(s.logs, name), []byte(p.Output()), 0o600))
		}
	}
	return errors.Join(errs...)
}

// live lets the churn go on, and then both come to rest.
func (s *shadow) live(ctx context.Context) error {
	cfg := s.cluster.Config()
	cfg.QPS = -1
	c := &churn{seed: s.seed}
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if err := c.connect(cfg); err != nil {
		return err
	}
	recording, stop := context.WithCancel(ctx)
	defer stop()
	for _, typ := range recorded {
		if err := s.record.watch(recording, client, typ); err != nil {
			return err
		}
	}
	c.newType = func(ctx context.Context, typ schema.GroupVersionResource) error {
		return s.record.watch(ctx, client, typ)
	}
	s.say("churn for %v, seed %d", s.length, s.seed)
	churning, end := context.WithTimeout(ctx, s.length)
	defer end()
	done := make(chan struct{})
	go func() { defer close(done); c.run(churning) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-s.ours.Done():
			return fmt.Errorf("controller-manager ended: %s", tail(s.ours.Output()))
		case <-s.other.Done():
			return fmt.Errorf("kube-controller-manager ended: %s", tail(s.other.Output()))
		case <-time.After(time.Minute):
			s.tell(c)
		}
	}
	s.tell(c)
	s.say("rest for %v", settle)
	pause(ctx, settle)
	return nil
}

func tail(text string) string { return text[max(0, len(text)-2000):] }

func (c *churn) connect(cfg *rest.Config) (err error) {
	if c.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return err
	}
	c.crds, err = crds.NewForConfig(cfg)
	return err
}

func (s *shadow) tell(c *churn) {
	text := ""
	if last := c.last.Load(); last != nil {
		text = ", the last: " + *last
	}
	s.say("%d objects made, %d requests of the churn failed%s; %d requests would have been sent", c.made.Load(), c.problems.Load(), text, strings.Count(s.ours.Output(), wouldSend))
}

// report judges, and returns an error if there are false positives.
func (s *shadow) report(auditLog string) error {
	would, err := readWould(s.ours.Output())
	if err != nil {
		return err
	}
	text, err := os.ReadFile(auditLog)
	if err != nil {
		return err
	}
	deletions, err := readDeletions(string(text))
	if err != nil {
		return err
	}
	s.record.lock.Lock()
	defer s.record.lock.Unlock()
	s.say("%d objects were seen", len(s.record.lives))
	if judge(s.record.lives, would, deletions, time.Now()).print(os.Stdout) {
		return errWrong
	}
	return nil
}

// readWould finds what would have been sent in the log.
func readWould(log string) (all []would, err error) {
	for line := range strings.Lines(log) {
		if !strings.Contains(line, wouldSend) {
			continue
		}
		var entry struct {
			At      float64   `json:"ts"` // ms
			Request string    `json:"request"`
			UID     types.UID `json:"uid"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return nil, fmt.Errorf("parse %q: %w", line, err)
		}
		all = append(all, would{at: time.UnixMicro(int64(entry.At * 1000)), request: entry.Request, uid: entry.UID})
	}
	return all, nil
}

// readDeletions finds what the other collector was granted.
func readDeletions(log string) (all []deletion, err error) {
	for line := range strings.Lines(log) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("parse audit log: %w", err)
		}
		if e.ObjectRef != nil && strings.HasSuffix(e.UserAgent, "/generic-garbage-collector") && e.ResponseStatus != nil && e.ResponseStatus.Code/100 == 2 {
			all = append(all, deletion{at: e.StageTimestamp.Time, what: name(e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name)})
		}
	}
	return all, nil
}
