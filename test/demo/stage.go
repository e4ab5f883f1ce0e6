package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

const grace = "10s"

var nodes = []string{"node-a", "node-b"}

type stage struct {
	start      time.Time
	program    string
	client     kubernetes.Interface
	cluster    *controlplane.Cluster
	kubeconfig string // file of the admin
	manager    *controlplane.Process
	dir        string
	died       chan error

	kubelets  map[string]*player // by node
	scheduler *player
}

func raise(ctx context.Context, program string) (_ *stage, err error) {
	s := &stage{start: time.Now(), program: program, kubelets: map[string]*player{}, died: make(chan error, 1)}
	defer func() {
		if err != nil {
			s.lower()
		}
	}()
	s.title("A control plane of its own")
	s.say("starting etcd and kube-apiserver")
	if s.cluster, err = controlplane.Start(controlplane.Options{}); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // Ctrl-C while the API server started
		return nil, err
	}
	if s.client, err = kubernetes.NewForConfig(s.cluster.Config()); err != nil {
		return nil, fmt.Errorf("build a client: %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "minikcm-demo-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	s.kubeconfig = filepath.Join(s.dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(s.kubeconfig, s.cluster.Config()); err != nil {
		return nil, err
	}
	if err := s.startServers(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *stage) startServers(ctx context.Context) error {
	s.say("simulating the scheduler and the kubelets of %s", strings.Join(nodes, " and "))
	s.scheduler = playScheduler(s.client)
	for _, name := range nodes {
		if err := kubelet.Register(ctx, s.client, controlplane.Node(name), leaseGrace); err != nil {
			return err
		}
		if err := s.startKubelet(name); err != nil {
			return err
		}
	}
	s.say("starting our controller-manager; a silent node is declared dead after %s instead of 50s", grace)
	port, err := controlplane.FindPort()
	if err != nil {
		return err
	}
	if s.program == "" {
		if s.program, err = controlplane.Binary("controller-manager"); err != nil {
			return err
		}
	}
	s.manager, err = controlplane.Launch(s.program, "--kubeconfig="+s.kubeconfig, "--authentication-kubeconfig="+s.kubeconfig,
		"--authorization-kubeconfig="+s.kubeconfig, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--controllers=*,deployment,garbagecollector", "--node-monitor-period=1s", "--node-monitor-grace-period="+grace)
	if err != nil {
		return err
	}
	go func() {
		<-s.manager.Done()
		out := s.manager.Output()
		s.died <- fmt.Errorf("the manager has ended with exit code %d; the end of its log:\n%s", s.manager.ExitCode(), out[max(0, len(out)-2000):])
	}()
	return s.wait(ctx, "nodes", time.Minute, s.readyNodes(len(nodes)))
}

func (s *stage) startKubelet(node string) error {
	k, err := playKubelet(s.client, node)
	if err != nil {
		return err
	}
	s.kubelets[node] = k
	return nil
}

func (s *stage) lower() {
	s.say("stopping")
	if s.manager != nil {
		_ = s.manager.Signal(syscall.SIGTERM) // the manager may have ended
		_, err := s.manager.Wait(10 * time.Second)
		s.report(errors.Join(err, s.manager.Kill()))
	}
	if s.scheduler != nil {
		s.scheduler.kill()
	}
	for _, k := range s.kubelets {
		k.kill()
	}
	if s.cluster != nil {
		s.report(s.cluster.Stop())
	}
	if s.dir != "" {
		s.report(os.RemoveAll(s.dir))
	}
	s.say("nothing is left running")
}

func (s *stage) report(err error) {
	if err != nil {
		s.say("%v", err)
	}
}

func (s *stage) title(text string) {
	fmt.Printf("\n== %s %s\n", text, strings.Repeat("=", max(0, 76-len(text))))
}

func (s *stage) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// pause lets the viewer read, and pods grow old: ages that are close count as equal when pods are chosen.
func (s *stage) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Second):
	}
}

func (s *stage) wait(ctx context.Context, what string, timeout time.Duration, look func(context.Context) (seen string, done bool, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within %v", timeout))
	defer cancel()
	last := ""
	for {
		seen, done, err := look(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if seen != last && seen != "" {
			s.say("%s: %s", what, seen)
			last = seen
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case err := <-s.died:
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
