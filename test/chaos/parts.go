package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (r *rig) calm(ctx context.Context) (map[string]size, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		complaints := r.complaints(ctx)
		if len(complaints) == 0 {
			break
		}
		if !pause(ctx, 500*time.Millisecond) {
			return nil, fmt.Errorf("not calm at the start: %v", complaints)
		}
	}
	for pause(ctx, 3*time.Second) {
		sizes, err := r.measure(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range sizes {
			if s.leader { // on a busy machine the lease may just have been lost; a standby is smaller
				return sizes, nil
			}
		}
	}
	return nil, context.Cause(ctx)
}

func (r *rig) measure(ctx context.Context) (map[string]size, error) {
	sizes := map[string]size{}
	for _, s := range r.slots {
		var err error
		if sizes[s.name], err = s.measure(ctx); err != nil {
			return nil, err
		}
		r.say("%s has %.0f goroutines, %.0f MiB, %d watches, leader: %v", s.name, sizes[s.name].goroutines, sizes[s.name].memory, sizes[s.name].watches, sizes[s.name].leader)
	}
	return sizes, nil
}

func (r *rig) unleash(ctx context.Context, w *workload, p plan) {
	ctx, cancel := context.WithTimeout(ctx, r.options.length)
	defer cancel()
	begin := time.Now()
	var all sync.WaitGroup
	all.Go(func() { w.run(ctx) })
	for _, s := range p.steps {
		all.Go(func() {
			if !pause(ctx, time.Until(begin.Add(s.at))) {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, s.lasts)
			defer cancel()
			f := &fault{rig: r, slot: r.slots[s.slot], draw: rand.New(rand.NewPCG(s.seed, 0))}
			if err := s.kind.apply(ctx, f); err != nil {
				r.note(f.slot.name, "fault %s: %v", s.kind.name, err)
			}
		})
	}
	all.Wait()
}

func (r *rig) heal(ctx context.Context, w *workload) error {
	for _, s := range r.slots {
		s.proxy.Clear()
		if err := errors.Join(s.proxy.Restore(), s.start()); err != nil {
			return err
		}
	}
	for {
		err := errors.Join(r.removeWebhooks(ctx), w.liftQuota(ctx), w.unpinPods(ctx), w.unpinContent(ctx), w.untaintNode(ctx), w.resumeDeployments(ctx))
		if err == nil {
			break
		}
		if !pause(ctx, time.Second) {
			return err
		}
	}
	// The record may lack the latest changes.
	pause(ctx, time.Second)
	return errors.Join(w.unpinPods(ctx), w.unpinContent(ctx))
}

func (r *rig) removeWebhooks(ctx context.Context) error {
	return r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

func (r *rig) isDead(node string) bool {
	return slices.ContainsFunc(r.kubelets, func(k *nodeKubelet) bool { return k.name == node && !k.isOn() })
}

func (r *rig) judgeRest(ctx context.Context, before map[string]size) {
	ctx, cancel := context.WithTimeout(ctx, r.options.rest)
	defer cancel()
	begin := time.Now()
	var last []violation
	for {
		complaints := append(r.complaints(ctx), r.complaintsOfManagers(ctx, before)...)
		if ctx.Err() == nil {
			last = complaints
		}
		if len(last) == 0 {
			r.say("at rest after %.1f s", time.Since(begin).Seconds())
			break
		}
		if !pause(ctx, 500*time.Millisecond) {
			break
		}
	}
	for _, v := range last {
		r.violate(v.of, fmt.Sprintf("still after %v of quiet: %s", r.options.rest, v.text))
	}
}

func (r *rig) complaints(ctx context.Context) []violation {
	pods, err := r.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return []violation{{text: err.Error()}}
	}
	sets, err := r.client.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return []violation{{text: err.Error()}}
	}
	deployments, err := r.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return []violation{{text: err.Error()}}
	}
	nodes, err := r.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []violation{{text: err.Error()}}
	}
	namespaces, err := r.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []violation{{text: err.Error()}}
	}
	var all []violation
	ending := map[string]bool{}
	for _, ns := range namespaces.Items {
		if ns.DeletionTimestamp == nil {
			continue
		}
		ending[ns.Name] = true
		// A pod on a dead node, and the namespace of the pod, end when the kubelet or the user removes the pod.
		if !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Namespace == ns.Name && r.isDead(p.Spec.NodeName) }) {
			all = append(all, violation{ns.Name, fmt.Sprintf("namespace is not gone: %+v", ns.Status.Conditions)})
		}
	}
	for _, rs := range sets.Items {
		if !ending[rs.Namespace] {
			all = append(all, judgeSet(&rs, pods.Items, r.isDead)...)
		}
	}
	for _, d := range deployments.Items {
		if !ending[d.Namespace] {
			all = append(all, judgeDeployment(&d, sets.Items)...)
		}
	}
	byName := map[string]*corev1.Node{}
	for _, n := range nodes.Items {
		byName[n.Name] = &n
		all = append(all, judgeNode(&n, r.isDead(n.Name))...)
	}
	for _, k := range r.kubelets {
		if byName[k.name] == nil && k.isOn() {
			all = append(all, violation{k.name, "node is not registered"})
		}
	}
	for _, p := range pods.Items {
		all = append(all, judgePod(&p, byName)...)
	}
	for _, v := range judgeGarbage(pods.Items, sets.Items, deployments.Items) {
		if namespace, _, _ := strings.Cut(v.of, "/"); !ending[namespace] {
			all = append(all, v)
		}
	}
	return all
}
