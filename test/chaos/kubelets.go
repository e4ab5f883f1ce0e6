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
	nodeGrace     = 6 * time.Second // --node-monitor-grace-period of the managers
	renewInterval = 700 * time.Millisecond
	// nodeCount and zoneCount keep more than half of each zone alive with deadNodes gone.
	nodeCount = 9
	zoneCount = 2
	deadNodes = 3
)

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

func (k *nodeKubelet) setOn(on bool) {
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

// lastSign returns the last renewal before a time, and whether the kubelet was silenced after the renewal.
func (k *nodeKubelet) lastSign(at time.Time) (sign time.Time, silenced bool) {
	k.lock.Lock()
	defer k.lock.Unlock()
	for _, s := range k.signs {
		if s.After(at) {
			break
		}
		sign = s
	}
	silenced = slices.ContainsFunc(k.stops, func(t time.Time) bool { return !t.Before(sign.Add(-2*renewInterval)) && t.Before(at) })
	return sign, silenced
}

func (k *nodeKubelet) sendHeartbeat(ctx context.Context) {
	if !k.isOn() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	node, err := k.client.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = k.client.CoreV1().Nodes().Create(ctx, controlplane.Node(k.name, func(n *corev1.Node) {
			n.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("zone-%d", int(n.Name[len(n.Name)-1]-'0')%zoneCount)
		}), metav1.CreateOptions{})
	}
	if err != nil {
		return
	}
	lease, err := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		err = kubelet.CreateLease(ctx, k.client, k.name, nodeGrace)
	case err == nil:
		err = kubelet.Renew(ctx, k.client, lease)
	}
	if err == nil {
		k.lock.Lock()
		k.signs = append(k.signs, time.Now())
		k.lock.Unlock()
	}
	if controlplane.NodeReady(node) != corev1.ConditionTrue {
		_ = kubelet.PostReady(ctx, k.client, k.name)
	}
}

func (k *nodeKubelet) runPods(ctx context.Context) {
	for _, pod := range liveObjects(k.pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == k.name }) {
		switch {
		case !k.isOn():
			return
		case pod.DeletionTimestamp != nil:
			if len(pod.Finalizers) == 0 {
				_ = kubelet.LetGo(ctx, k.client, pod)
			}
		case isActive(pod) && !kubelet.IsReady(pod) && k.isDue(string(pod.UID)):
			_ = kubelet.Post(ctx, k.client, pod, kubelet.Ready, "", "")
		}
	}
}

// isDue lets a pod take up to a second to become ready.
func (k *nodeKubelet) isDue(uid string) bool {
	at, ok := k.seen[uid]
	if !ok {
		at = time.Now().Add(time.Duration(k.random.Int64N(int64(time.Second))))
		k.seen[uid] = at
	}
	return time.Now().After(at)
}

// schedulePods binds pods to nodes at random.
func schedulePods(ctx context.Context, client kubernetes.Interface, h *histories, random *rand.Rand) {
	nodes := liveObjects(h.nodes, func(n *corev1.Node) bool { return n.DeletionTimestamp == nil })
	for _, pod := range liveObjects(h.pods, func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "" && p.DeletionTimestamp == nil && p.Namespace != rolling
	}) {
		fit := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return len(n.Spec.Taints) > 0 && !toleratesAll(pod) })
		if len(fit) == 0 {
			continue
		}
		_ = client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: drawFrom(random, fit...).Name},
		}, metav1.CreateOptions{}) // bound already, or gone
	}
}

func toleratesAll(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == "" && t.Operator == corev1.TolerationOpExists && t.Effect == "" && t.TolerationSeconds == nil
	})
}
