package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	endpointSliceController = "endpointslice-controller"

	becomeReady = "50 × 20 pods become ready"
	areReplaced = "half of 50 × 20 pods are replaced"
	ofOne       = "2,000 pods of one Service become ready"
)

var (
	withEndpoints     = []string{"--controllers=" + endpointSliceController}
	oursEndpoints     = contestant{name: "ours-endpoints", program: oursProgram, args: withEndpoints}
	upstreamEndpoints = contestant{name: "upstream-endpoints", program: upstreamProgram, args: withEndpoints}
)

// Metrics of one phase.
func lastSlice(phase string) string   { return phase + ", last pod to last slice" }
func sliceWrites(phase string) string { return phase + ", slice writes" }
func phaseCPU(phase string) string    { return phase + ", " + managerCPU }

func endpointTargets() (list []target) {
	for _, phase := range []string{becomeReady, areReplaced, ofOne} {
		list = append(list, target{metric: lastSlice(phase), ratio: true, most: 1}, target{metric: sliceWrites(phase), ratio: true, most: 1},
			target{metric: phaseCPU(phase), ratio: true, most: 0.8})
	}
	return list
}

func createOneNode(ctx context.Context, r *rig) { r.registerNodes(ctx, 1) }

func measureEndpoints(ctx context.Context, r *rig, c contestant) (readings []reading) {
	defer r.renewLeases(ctx, 1)()
	m := r.launchWorking(ctx, c)
	few, one := createBackends(ctx, r, "few", 50, 20), createBackends(ctx, r, "one", 1, 2_000)
	for _, phase := range []struct {
		name  string
		of    *backends
		first int // pod that changes
		do    func(context.Context, int)
	}{{becomeReady, few, 0, few.markReady}, {areReplaced, few, len(few.pods) / 2, few.replace}, {ofOne, one, 0, one.markReady}} {
		sent := byLoop(endpointSliceController)
		slices := controlplane.ByResource("endpointslices")
		requests, writes := len(r.requests(sent)), len(r.requests(sent, slices, controlplane.Writes))
		var changed, right time.Time
		e := r.measureEffort(m, func() time.Time {
			phase.of.each(ctx, phase.first, phase.do)
			changed = time.Now()
			must.Poll(ctx, pollInterval/2, func() bool { return phase.of.shown(ctx) })
			right = time.Now()
			must.Pause(ctx, settleTime) // later work counts
			return right
		})
		readings = append(readings,
			reading{phase.name, "s", e.wall}, reading{lastSlice(phase.name), "s", right.Sub(changed).Seconds()}, reading{phaseCPU(phase.name), "s", e.manager},
			reading{phase.name + ", requests", "", float64(len(r.requests(sent)) - requests)},
			reading{sliceWrites(phase.name), "", float64(len(r.requests(sent, slices, controlplane.Writes)) - writes)})
	}
	return readings
}

// backends are the pods of some Services.
type backends struct {
	*rig
	name     string
	services int
	pods     []*corev1.Pod
}

// createBackends creates Services and their pods. The pods have no addresses, so each Service gets a slice without
// endpoints.
func createBackends(ctx context.Context, r *rig, name string, services, podsEach int) *backends {
	b := &backends{r, name, services, make([]*corev1.Pod, services*podsEach)}
	b.each(ctx, 0, b.createPod)
	must.ForEach(ctx, writers, services, func(ctx context.Context, i int) {
		service := &corev1.Service{ObjectMeta: objectMeta(b.app(i)), Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": b.app(i)},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http-main")}},
		}}
		service.Labels = map[string]string{"backends": name} // slices have the labels of their Service
		r.create(ctx, service)
	})
	must.Pause(ctx, settleTime)
	return b
}

func (b *backends) app(i int) string { return fmt.Sprint(b.name, "-", i%b.services) }

func (b *backends) each(ctx context.Context, first int, do func(context.Context, int)) {
	must.ForEach(ctx, writers, len(b.pods)-first, func(ctx context.Context, i int) { do(ctx, first+i) })
}

func (b *backends) createPod(ctx context.Context, i int) {
	pod := controlplane.Pod(benchNamespace, "", map[string]string{"app": b.app(i)})
	pod.GenerateName, pod.Spec = b.app(i)+"-", ordinarySet(b.app(i)).Spec.Template.Spec
	pod.Spec.NodeName = nodeName(0)
	b.create(ctx, pod)
	b.pods[i] = pod
}

func (b *backends) markReady(ctx context.Context, i int) {
	must.Succeed(kubelet.Post(ctx, b.kube, b.pods[i], kubelet.Ready, "", ""))
}

func (b *backends) replace(ctx context.Context, i int) {
	must.Succeed(kubelet.LetGo(ctx, b.kube, b.pods[i]))
	b.createPod(ctx, i)
	b.markReady(ctx, i)
}

// shown reports whether the slices have all pods as ready endpoints, and no other endpoints.
func (b *backends) shown(ctx context.Context) bool {
	missing := map[types.UID]bool{}
	for _, pod := range b.pods {
		missing[pod.UID] = true
	}
	var slices discoveryv1.EndpointSliceList
	must.Succeed(b.client.List(ctx, &slices, client.InNamespace(benchNamespace), client.MatchingLabels{"backends": b.name}))
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if uid := endpoint.TargetRef.UID; !missing[uid] || !*endpoint.Conditions.Ready {
				return false
			}
			delete(missing, endpoint.TargetRef.UID)
		}
	}
	return len(missing) == 0
}

// createManyEndpoints lets a manager write the slices, so that the contestants only watch.
func createManyEndpoints(ctx context.Context, r *rig) {
	createOneNode(ctx, r)
	b := createBackends(ctx, r, "many", 200, 100)
	b.each(ctx, 0, b.markReady)
	r.launch(oursEndpoints, managerUser)
	must.Poll(ctx, settleTime, func() bool { return b.shown(ctx) })
	must.Succeed(r.stopManagers())
}

func measureEndpointsMemory(ctx context.Context, r *rig, c contestant) []reading {
	defer r.renewLeases(ctx, 1)()
	return measureMemory(20*time.Second)(ctx, r, c)
}
