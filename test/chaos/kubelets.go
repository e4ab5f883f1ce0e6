package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

const (
	nodeGrace   = 6 * time.Second // --node-monitor-grace-period of the managers
	renewPeriod = 700 * time.Millisecond
	// nodeCount and zoneCount keep more than half of each zone alive with deadNodes gone.
	nodeCount = 9
	zoneCount = 2
	deadNodes = 3
)

// span is a stretch of time; a zero end is not yet.
type span struct{ from, to time.Time }

func (s span) overlap(from, to time.Time) time.Duration {
	if s.to.IsZero() || s.to.After(to) {
		s.to = to
	}
	if s.from.Before(from) {
		s.from = from
	}
	return max(0, s.to.Sub(s.from))
}

type nodeKubelet struct {
	name   string
	client kubernetes.Interface
	pods   *history

	lock   sync.Mutex
	on     bool
	signs  []time.Time
	stops  []time.Time
	random *rand.Rand
	seen   map[string]time.Time
}

func (k *nodeKubelet) set(on bool) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if k.on && !on {
		k.stops = append(k.stops, time.Now())
	}
	k.on = on
}

func (k *nodeKubelet) isOn() bool {
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.on
}

func (k *nodeKubelet) silentBefore(at time.Time) (sign time.Time, told bool) {
	k.lock.Lock()
	defer k.lock.Unlock()
	for _, s := range k.signs {
		if s.After(at) {
			break
		}
		sign = s
	}
	told = slices.ContainsFunc(k.stops, func(t time.Time) bool { return !t.Before(sign.Add(-2*renewPeriod)) && t.Before(at) })
	return sign, told
}

// run plays until ctx ends. The heartbeat never waits for the pods.
func (k *nodeKubelet) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() {
		for pause(ctx, renewPeriod) {
			if k.isOn() {
				k.heartbeat(ctx)
			}
		}
	})
	both.Go(func() {
		for pause(ctx, 150*time.Millisecond) {
			if k.isOn() {
				k.runPods(ctx)
			}
		}
	})
	both.Wait()
}

func (k *nodeKubelet) heartbeat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	node, err := k.client.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = k.register(ctx)
	}
	if err != nil {
		return
	}
	if err := k.renew(ctx); err == nil {
		k.lock.Lock()
		k.signs = append(k.signs, time.Now())
		k.lock.Unlock()
	}
	if nodeReady(node) != corev1.ConditionTrue {
		_ = kubelet.PostReady(ctx, k.client, node)
	}
}

func (k *nodeKubelet) register(ctx context.Context) (*corev1.Node, error) {
	return k.client.CoreV1().Nodes().Create(ctx, controlplane.Node(k.name, func(n *corev1.Node) {
		zone := int(n.Name[len(n.Name)-1]-'0') % zoneCount
		n.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("zone-%d", zone)
	}), metav1.CreateOptions{})
}

func (k *nodeKubelet) renew(ctx context.Context) error {
	lease, err := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return kubelet.CreateLease(ctx, k.client, k.name, nodeGrace)
	}
	if err != nil {
		return err
	}
	return kubelet.Renew(ctx, k.client, lease)
}

func (k *nodeKubelet) runPods(ctx context.Context) {
	for _, pod := range current(k.pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == k.name }) {
		switch {
		case !k.isOn():
			return
		case pod.DeletionTimestamp != nil:
			if len(pod.Finalizers) == 0 {
				_ = kubelet.LetGo(ctx, k.client, pod)
			}
		case active(pod) && !kubelet.IsReady(pod) && k.due(string(pod.UID)):
			_ = kubelet.Post(ctx, k.client, pod, kubelet.Ready, "", "")
		}
	}
}

// due lets a pod take up to a second to become ready.
func (k *nodeKubelet) due(uid string) bool {
	at, ok := k.seen[uid]
	if !ok {
		at = time.Now().Add(time.Duration(k.random.Int64N(int64(time.Second))))
		k.seen[uid] = at
	}
	return time.Now().After(at)
}

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// schedule binds pods to nodes at random until ctx ends.
func schedule(ctx context.Context, client kubernetes.Interface, h *histories, random *rand.Rand) {
	for pause(ctx, 100*time.Millisecond) {
		nodes := current(h.nodes, func(n *corev1.Node) bool { return n.DeletionTimestamp == nil })
		waiting := current(h.pods, func(p *corev1.Pod) bool {
			return p.Spec.NodeName == "" && p.DeletionTimestamp == nil && p.Namespace != rolling
		})
		for _, pod := range waiting {
			fit := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !admits(n, pod) })
			if len(fit) == 0 {
				continue
			}
			_ = client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
				Target:     corev1.ObjectReference{Kind: "Node", Name: fit[random.IntN(len(fit))].Name},
			}, metav1.CreateOptions{}) // bound already, or gone
		}
	}
}

func admits(node *corev1.Node, pod *corev1.Pod) bool {
	return len(node.Spec.Taints) == 0 || toleratesAll(pod)
}

func toleratesAll(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == "" && t.Operator == corev1.TolerationOpExists && t.Effect == "" && t.TolerationSeconds == nil
	})
}
