package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	// nodeGrace and leaseGrace are short enough to watch a node die. A kubelet's own lease lasts 40 s.
	nodeGrace     = "10s"
	leaseGrace    = 8 * time.Second
	renewInterval = leaseGrace / 4 // as kubelets do
	bindInterval  = 100 * time.Millisecond
)

var nodes = []string{"node-a", "node-b"}

// stage is a control plane with a manager and simulated kubelets. A failed step ends the demo.
type stage struct {
	start      time.Time
	program    string
	client     client.Client
	kube       kubernetes.Interface
	cluster    *controlplane.Cluster
	kubeconfig string // file of the admin
	manager    *controlplane.Process
	dir        string
	died       chan error

	kubelets      map[string]func() // by node: ends the kubelet
	stopScheduler func()
}

func newStage(program string) *stage {
	return &stage{start: time.Now(), program: program, kubelets: map[string]func(){}, stopScheduler: func() {}, died: make(chan error, 1)}
}

func (s *stage) setUp(ctx context.Context) {
	s.printTitle("A control plane of its own")
	s.printLine("starting etcd and kube-apiserver")
	s.cluster = must.Get(controlplane.Start(controlplane.Options{}))
	must.Succeed(ctx.Err()) // Ctrl-C while the API server started
	s.kube = must.Get(kubernetes.NewForConfig(s.cluster.Config()))
	s.client = must.Get(controlplane.NewClient(s.cluster.Config()))
	s.dir = must.Get(os.MkdirTemp("", "minikcm-demo-"))
	s.kubeconfig = filepath.Join(s.dir, "kubeconfig")
	must.Succeed(controlplane.WriteKubeconfig(s.kubeconfig, s.cluster.Config()))

	s.printLine("export KUBECONFIG=%s     # for another terminal", s.kubeconfig)
	s.printLine("simulating the scheduler and the kubelets of %s", strings.Join(nodes, " and "))
	s.stopScheduler = startPlayer(func(ctx context.Context) {
		repeat(ctx, bindInterval, func() { _ = must.Catch(func() { s.bindPods(ctx) }) })
	})
	for _, name := range nodes {
		must.Succeed(kubelet.Register(ctx, s.kube, controlplane.Node(name), leaseGrace))
		s.startKubelet(name)
	}
	s.printLine("starting controller-manager; a silent node becomes Unknown after %s instead of 50s", nodeGrace)
	if s.program == "" {
		s.program = must.Get(controlplane.Binary("controller-manager"))
	}
	s.manager = must.Get(controlplane.Launch(s.program, "--kubeconfig="+s.kubeconfig, "--authentication-kubeconfig="+s.kubeconfig,
		"--authorization-kubeconfig="+s.kubeconfig, "--authentication-skip-lookup", "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", must.Get(controlplane.FindPort())), "--node-monitor-period=1s", "--node-monitor-grace-period="+nodeGrace))
	go func() {
		<-s.manager.Done()
		out := s.manager.Output()
		s.died <- fmt.Errorf("the manager has ended with exit code %d; the end of its log:\n%s", s.manager.ExitCode(), out[max(0, len(out)-2000):])
	}()
	s.await(ctx, "nodes", time.Minute, s.seeReadyNodes)
}

func (s *stage) tearDown() {
	s.printLine("stopping")
	var errs []error
	if s.manager != nil {
		_ = s.manager.Signal(syscall.SIGTERM) // the manager may have ended
		_, err := s.manager.Wait(10 * time.Second)
		errs = append(errs, err, s.manager.Kill())
	}
	s.stopScheduler()
	for _, stopKubelet := range s.kubelets {
		stopKubelet()
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	if err := errors.Join(errs...); err != nil {
		s.printLine("%v", err)
	}
	s.printLine("nothing is left running")
}

func (s *stage) printTitle(text string) {
	fmt.Printf("\n== %s %s\n", text, strings.Repeat("=", max(0, 76-len(text))))
}

func (s *stage) printLine(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// rest lets the viewer read, and pods grow old: ages that are close count as equal when pods are chosen.
func (s *stage) rest(ctx context.Context) {
	must.Pause(ctx, 3*time.Second)
	select {
	case err := <-s.died:
		must.Succeed(err)
	default:
	}
}

// await calls look until done, and prints what look has seen whenever it changes.
func (s *stage) await(ctx context.Context, what string, timeout time.Duration, look func(context.Context) (seen string, done bool)) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("wait for %s: not done within %v", what, timeout))
	defer cancel()
	last := ""
	must.Poll(ctx, 50*time.Millisecond, func() bool {
		select {
		case err := <-s.died:
			must.Succeed(err)
		default:
		}
		seen, done := look(ctx)
		if seen != last && seen != "" {
			s.printLine("%s: %s", what, seen)
			last = seen
		}
		return done
	})
}

func (s *stage) create(ctx context.Context, o client.Object) { must.Succeed(s.client.Create(ctx, o)) }

func (s *stage) createNamespace(ctx context.Context, name string) {
	s.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (s *stage) patch(ctx context.Context, o client.Object, format string, args ...any) {
	must.Succeed(s.client.Patch(ctx, o, client.RawPatch("application/strategic-merge-patch+json", fmt.Appendf(nil, format, args...))))
}

// startPlayer simulates a program of a cluster until stop.
func startPlayer(part func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { part(ctx) })
	return func() { cancel(); running.Wait() }
}

// repeat calls do, and again after each interval, until ctx ends.
func repeat(ctx context.Context, interval time.Duration, do func()) {
	_ = must.Catch(func() {
		must.Poll(ctx, interval, func() bool { do(); return false })
	})
}

func (s *stage) startKubelet(node string) {
	pods := must.Get(kubelet.NewPlayer(s.kube, corev1.NamespaceAll, func(pod *corev1.Pod) kubelet.Course {
		if pod.Spec.NodeName != node {
			return kubelet.Course{GoneAfter: -1}
		}
		if pod.Annotations[unreadyKey] != "" {
			return kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Running}}}
		}
		return kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Ready}}}
	}))
	s.kubelets[node] = startPlayer(func(ctx context.Context) {
		var both sync.WaitGroup
		both.Go(func() { pods.Run(ctx, func() {}) })
		both.Go(func() { repeat(ctx, renewInterval, func() { _ = must.Catch(func() { s.sendHeartbeat(ctx, node) }) }) })
		both.Wait()
	})
}

func (s *stage) sendHeartbeat(ctx context.Context, name string) {
	lease := must.Get(s.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{}))
	must.Succeed(kubelet.Renew(ctx, s.kube, lease))
	node := must.Get(s.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}))
	if controlplane.NodeReady(node) != corev1.ConditionTrue {
		must.Succeed(kubelet.PostReady(ctx, s.kube, name))
	}
}

// bindPods is the scheduler.
func (s *stage) bindPods(ctx context.Context) {
	pods := must.Get(s.kube.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})).Items
	load := map[string]int{} // pods by node
	for _, pod := range pods {
		load[pod.Spec.NodeName]++
	}
	fit := must.Get(s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})).Items
	fit = slices.DeleteFunc(fit, func(n corev1.Node) bool { return len(n.Spec.Taints) > 0 || n.Spec.Unschedulable })
	for _, pod := range pods {
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(fit) == 0 {
			continue
		}
		node := slices.MinFunc(fit, func(a, b corev1.Node) int { return cmp.Compare(load[a.Name], load[b.Name]) }).Name
		if s.kube.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{}) == nil {
			load[node]++
		}
	}
}
