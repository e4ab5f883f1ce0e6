package replicaset

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"minikcm/pkg/controllers/replicaset"
	"minikcm/test/controlplane"
)

// TestSlowAdmissionHoldsUpNobodyElse: many ReplicaSets wait for admission, and one in another namespace gets its pods as if it were alone.
// Meanwhile the controller says that it is healthy, and in the end every pod is there.
func TestSlowAdmissionHoldsUpNobodyElse(t *testing.T) {
	const (
		sets, size = 8, 12
		delay      = 25 * time.Second // admission hangs for longer
	)
	slow, quick := newNamespace(t), newNamespace(t)
	hook := cluster.Webhook(t, controlplane.Webhook{
		Operations: []string{"CREATE"}, Resource: "pods", Namespace: slow.name, TimeoutSeconds: 30, Ignore: true,
	})
	hook.Hang()
	l := start(t, defaults())
	alone := quick.timeToPods(t, "alone")
	for i := range sets {
		slow.applyNamed(fmt.Sprintf("slow-%d", i), size)
	}
	slow.eventually(func(context.Context) error {
		if n := hook.Requests(); n < sets {
			return fmt.Errorf("admission was asked about %d pods", n)
		}
		return nil
	})
	worst := time.Duration(0)
	for i := range 3 {
		worst = max(worst, quick.timeToPods(t, fmt.Sprintf("quick-%d", i)))
		if err := l.controller.Healthy(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("five pods of another namespace: alone after %v, beside slow admission after at most %v", alone, worst)
	if worst > alone+delay {
		t.Errorf("a ReplicaSet of another namespace waited %v for its pods, alone %v", worst, alone)
	}
	hook.Heal()
	for i := range sets {
		slow.settled(fmt.Sprintf("slow-%d", i))
	}
}

// timeToPods creates a ReplicaSet and waits for its five pods.
func (n *namespace) timeToPods(t *testing.T, name string) time.Duration {
	t.Helper()
	asked := time.Now()
	rs := n.applyNamed(name, 5)
	n.eventually(func(context.Context) error {
		if got := len(n.active(rs)); got != 5 {
			return fmt.Errorf("%s has %d active pods, want 5", name, got)
		}
		return nil
	})
	return time.Since(asked)
}

// TestMinutesOfSlowAdmission: a manager as it is deployed, with its lease and its /livez, has thousands of pods to make whose admission takes
// seconds, or hangs and is ignored. It stays in office and alive, a ReplicaSet of another namespace that is scaled up and down all the time
// is served as if it were alone, and the pods are made while admission is as slow as it was.
func TestMinutesOfSlowAdmission(t *testing.T) {
	controlplane.SkipUnlessSoak(t)
	const (
		size  = 500
		delay = 3 * time.Second
	)
	for _, tt := range []struct {
		name       string
		slow, hung int // ReplicaSets whose creates take delay, and 10 s
		lasts      time.Duration
	}{
		{"two hang", 0, 2, 5 * time.Minute},
		{"five are slow and two hang", 5, 2, 10 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stage := startStage(t)
			slow, hung, quick := namespaceOf(t, stage, "slow"), namespaceOf(t, stage, "hung"), namespaceOf(t, stage, "quick")
			hook := controlplane.Webhook{Operations: []string{"CREATE"}, Resource: "pods", TimeoutSeconds: 10, Ignore: true}
			hook.Namespace = slow.name
			stage.Webhook(t, hook).Delay(delay)
			hook.Namespace = hung.name
			stage.Webhook(t, hook).Hang()

			m := startServing(t, stage)
			quick.applyNamed("quick", 1)
			quick.settled("quick")
			term := m.term(t)
			alone := quick.scaleFor("quick", 30*time.Second)
			t.Logf("alone: %v", alone)
			began := time.Now()
			for i := range tt.slow {
				slow.applyNamed(fmt.Sprintf("many-%d", i), size)
			}
			for i := range tt.hung {
				hung.applyNamed(fmt.Sprintf("many-%d", i), size)
			}
			over := make(chan struct{})
			var beside sync.WaitGroup
			beside.Go(func() { m.probe(t, over) })
			beside.Go(func() { slow.awaitPods("pods whose admission is slow", tt.slow*size, over) })
			beside.Go(func() { hung.awaitPods("pods whose admission hangs", tt.hung*size, over) })
			end := sync.OnceFunc(func() { close(over); beside.Wait() })
			defer end()
			loaded := quick.scaleFor("quick", tt.lasts)
			end()
			t.Logf("beside slow admission, for %v: %v", time.Since(began).Round(time.Second), loaded)
			if loaded.worst() > alone.worst()+delay {
				t.Errorf("a ReplicaSet of another namespace waited %v for its pods, alone %v", loaded.worst(), alone.worst())
			}
			for i := range tt.slow {
				slow.settled(fmt.Sprintf("many-%d", i))
			}
			for i := range tt.hung {
				hung.settled(fmt.Sprintf("many-%d", i))
			}
			if now := m.term(t); now != term {
				t.Errorf("the lease is held by %+v, before by %+v", now, term)
			}
			select {
			case <-m.Done():
				t.Errorf("the manager has ended with %d", m.ExitCode())
			default:
			}
		})
	}
}

// startStage starts a control plane for a test that leaves thousands of pods behind.
func startStage(t *testing.T) *controlplane.Cluster {
	t.Helper()
	stage, err := controlplane.Start(controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stage.Stop(); err != nil {
			t.Error(err)
		}
	})
	return stage
}

// namespaceOf makes a namespace that ends with its control plane.
func namespaceOf(t *testing.T, stage *controlplane.Cluster, name string) *namespace {
	t.Helper()
	client := stage.Client(t)
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &namespace{t: t, name: name, client: client}
}

// server is a manager that serves.
type server struct {
	*controlplane.Process
	stage    *controlplane.Cluster
	identity *rest.Config // of itself and of whoever asks it
	port     int
}

// startServing starts the manager with the flags of deploy/, but for the choice of controllers.
func startServing(t *testing.T, stage *controlplane.Cluster) *server {
	t.Helper()
	s := &server{stage: stage, identity: stage.ManagerConfig("manager", replicaset.Name), port: controlplane.FreePort(t)}
	file := stage.KubeconfigFor(t, s.identity)
	s.Process = controlplane.StartProcess(t, "--kubeconfig="+file, "--authentication-kubeconfig="+file, "--authorization-kubeconfig="+file,
		"--controllers="+replicaset.Name, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", s.port), "-v=2")
	return s
}

// probe asks for /livez every second until the test is over.
func (s *server) probe(t *testing.T, over <-chan struct{}) {
	const patience = 15 * time.Second // timeoutSeconds of the probe in deploy/
	asked, failed, longest, began := 0, 0, time.Duration(0), time.Now()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for going := true; going; {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		sent := time.Now()
		_, err := controlplane.Page(ctx, s.identity, s.port, "/livez")
		cancel()
		asked, longest = asked+1, max(longest, time.Since(sent))
		if err != nil {
			failed++
			t.Errorf("/livez after %v: %v", sent.Sub(began).Round(time.Second), err)
		}
		select {
		case <-ticker.C:
		case <-over:
			going = false
		}
	}
	t.Logf("/livez: %d of %d failed, the slowest took %v", failed, asked, longest.Round(time.Millisecond))
}

// term is a holding of the lease.
type term struct {
	holder      string
	transitions int32
}

func (s *server) term(t *testing.T) term {
	t.Helper()
	lease, err := s.stage.Client(t).CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return term{*lease.Spec.HolderIdentity, *lease.Spec.LeaseTransitions}
}

// latencies are how long each of some changes took.
type latencies []time.Duration

func (l latencies) worst() time.Duration { return slices.Max(l) }

func (l latencies) String() string {
	sorted := slices.Sorted(slices.Values(l))
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d changes, median %v, 99 %% within %v, worst %v", len(sorted), at(50), at(99), at(100))
}

// scaleFor scales a ReplicaSet up to six pods and down to one, again and again, and measures how long each change takes.
func (n *namespace) scaleFor(name string, lasts time.Duration) latencies {
	n.t.Helper()
	var took latencies
	ticker := time.NewTicker(300 * time.Millisecond) // the machine has other things to do
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < lasts; <-ticker.C {
		for _, replicas := range []int32{6, 1} {
			asked := time.Now()
			n.scale(name, replicas)
			rs := n.get(name)
			n.eventually(func(context.Context) error {
				if got := len(n.active(rs)); got != int(replicas) {
					return fmt.Errorf("%s has %d active pods, want %d", name, got, replicas)
				}
				return nil
			})
			took = append(took, time.Since(asked))
		}
	}
	return took
}

// awaitPods says how long the pods of a namespace took. They must be there when the test is over.
func (n *namespace) awaitPods(what string, want int, over <-chan struct{}) {
	if want == 0 {
		return
	}
	began, made := time.Now(), 0
	for made < want {
		select {
		case <-time.After(time.Second):
		case <-over:
			n.t.Errorf("%s: only %d of %d were made", what, made, want)
			return
		}
		list, err := n.client.CoreV1().Pods(n.name).List(context.Background(), metav1.ListOptions{ResourceVersion: "0"})
		if err == nil {
			made = len(list.Items)
		}
	}
	n.t.Logf("%s: %d were made within %v", what, made, time.Since(began).Round(time.Second))
}
