package main

import (
	"context"
	"time"
)

// Names of the programs in bin/.
const (
	oursProgram     = "controller-manager"
	upstreamProgram = "kube-controller-manager"
)

// contestant is a program with flags.
type contestant struct {
	name, program string
	args          []string
}

var (
	ours = contestant{name: "ours", program: oursProgram}
	// oursZeroGrace is valid for a single API server.
	oursZeroGrace = contestant{name: "ours-zero-grace", program: oursProgram, args: []string{"--namespace-deletion-grace-period=0s"}}
	upstream      = contestant{name: "upstream", program: upstreamProgram}
	// upstreamUnlimited lifts upstream's limit of 20 requests per second out of the way.
	upstreamUnlimited = contestant{name: "upstream-5000qps", program: upstreamProgram, args: []string{"--kube-api-qps=5000", "--kube-api-burst=10000"}}
)

// Controllers by the names that both programs know.
const (
	commonControllers    = replicaSetController + ",node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller,namespace-controller"
	replicaSetController = "replicaset-controller"
	deploymentController = "deployment-controller"
	collectorController  = "garbage-collector-controller"
)

type scenario struct {
	name, about string
	contestants []contestant
	peer        string // base of ratios: the last contestant, also if the flags exclude it
	adds        string // to commonControllers
	long        bool   // only with -long
	shared      bool   // all turns use the same control plane
	maxRuns     int    // 0: no limit
	audit       bool   // log the managers' requests
	setup       func(ctx context.Context, r *rig)
	measure     func(ctx context.Context, r *rig, c contestant) []reading
	targets     []target
}

var scenarios = append([]scenario{
	{
		name: "start", about: "From the start of the process to the first pod of a ReplicaSet that waits for it; then what it needs when idle",
		contestants: []contestant{ours, upstream},
		setup:       createOneSet, measure: measureStart,
		targets: []target{{metric: firstPod, most: 1}, {metric: resident, most: 40}},
	},
	{
		name: "scale", about: "5 new ReplicaSets of 200 pods each; no scheduler and no kubelet",
		contestants: []contestant{ours, upstreamUnlimited}, measure: measureScale,
		targets: []target{{metric: "1,000 pods created", most: 4}, {metric: managerCPU, most: 0.5}, {metric: managerCPU, ratio: true, most: 0.8}},
	},
	{
		name: "hand-over", about: "SIGTERM to the leader of two while pods are being made: to the first pod made by the other",
		contestants: []contestant{ours, upstream}, audit: true, measure: measureHandOver,
		targets: []target{{metric: takeOver, most: 0.3}},
	},
	{
		name: "crash", about: "SIGKILL of the leader of two, lease of 15 s: to the first pod made by the other",
		contestants: []contestant{ours, upstream}, maxRuns: 2, audit: true, measure: measureCrash,
		targets: []target{{metric: takeOver, most: 15.5}},
	},
	{
		name: "namespace", about: "Deletion of one namespace of 30 objects, and of 29 such at once",
		contestants: []contestant{ours, oursZeroGrace, upstream}, measure: measureNamespaces,
		targets: []target{
			{metric: oneNamespace, most: 5.3}, {metric: oneNamespace, contestant: oursZeroGrace.name, most: 0.6},
			{metric: allNamespaces, contestant: oursZeroGrace.name, most: 3}, {metric: allNamespaces, contestant: oursZeroGrace.name, ratio: true, most: 1. / 3},
		},
	},
	{
		name: "nodes", about: "1,000 nodes that renew their leases every 10 s",
		contestants: []contestant{ours, upstream}, maxRuns: 1, audit: true, setup: createNodes, measure: measureNodes,
		targets: []target{{metric: restingCPU, most: 1.5}, {metric: restingCPU, ratio: true, most: 0.5}, {metric: restingWrites, most: 0}},
	},
	{
		name: "rollout", about: "20 Deployments of 50 pods: up, and a new template",
		contestants: []contestant{ours, upstreamUnlimited}, adds: deploymentController, audit: true, measure: measureRollout,
		targets: []target{
			{metric: rolledOut, ratio: true, most: 1.1}, {metric: managerCPU, most: 1.3}, {metric: managerCPU, ratio: true, most: 0.6}, {metric: conflicts, most: 2},
		},
	},
	{
		name: "memory", about: "Resident memory beside 20,000 pods of 100 ReplicaSets",
		contestants: []contestant{ours, upstream}, shared: true, maxRuns: 1, setup: createOwnedPods, measure: measureMemory(20 * time.Second),
		targets: []target{{metric: resident, most: 85}},
	},
	{
		name: "replicasets-10k", about: "Resident memory beside 10,000 idle ReplicaSets",
		contestants: []contestant{ours, upstreamUnlimited}, adds: deploymentController, long: true, shared: true, maxRuns: 1,
		setup: createIdleSets, measure: measureMemory(time.Minute), targets: []target{{metric: resident, ratio: true, most: 0.5}},
	},
	{
		name: "garbage", about: "An owner of 1,000 ConfigMaps and 1,000 pods is deleted",
		contestants: []contestant{ours, upstreamUnlimited}, adds: collectorController, audit: true, measure: measureGarbage,
		targets: []target{{metric: perDependent, most: 1.05}},
	},
	{
		name: "endpoints", about: "50 Services of 20 pods, of which half are replaced, and one Service of 2,000 pods",
		contestants: []contestant{ours, upstreamUnlimited}, adds: endpointSliceController, audit: true, setup: createOneNode, measure: measureEndpoints,
		targets: endpointTargets(),
	},
	{
		name: "endpoints-memory", about: "Resident memory beside 20,000 ready pods of 200 Services, without and with the EndpointSlice controller",
		contestants: []contestant{ours, upstream, oursEndpoints, upstreamEndpoints}, long: true, shared: true, maxRuns: 1,
		setup: createManyEndpoints, measure: measureEndpointsMemory,
		targets: []target{{metric: resident, contestant: oursEndpoints.name, ratio: true, most: 0.3}},
	},
	{
		name: "discovery-lag", about: "API server away for 20 s, then without custom types in discovery: 20 Terminating namespaces with objects of such a type",
		contestants: []contestant{ours, upstreamUnlimited}, maxRuns: 1, adds: collectorController, measure: measureDiscoveryLag,
		// kube-apiserver rejects objects of a new type for two seconds.
		targets: []target{{metric: earlyMetric(discoveryLags[0]), most: 0}, {metric: earlyMetric(discoveryLags[1]), most: 0}},
	},
	{
		name: "broken-webhook", about: "An owner of 2,000 ConfigMaps whose deletion a broken webhook refuses for a minute",
		contestants: []contestant{ours, upstreamUnlimited}, maxRuns: 1, adds: collectorController, audit: true, measure: measureBrokenWebhook,
		targets: []target{{metric: rejectedRequests, most: 5_400}, {metric: rejectedLines, most: 600}, {metric: rejectedGone, most: 60}},
	},
	{
		name: "api-server-away", about: "API server away for 30 s beside 300 custom types: connection attempts, and watches on its return",
		contestants: []contestant{ours, upstreamUnlimited}, maxRuns: 1, adds: collectorController,
		shared: true, setup: createTypes(awayTypes), measure: measureAway,
		targets: []target{{metric: awayDials, most: 30}, {metric: watchesResumed, most: 5}, {metric: listsAfterwards, most: 0}},
	},
	{
		name: "orphans", about: "200 Jobs in as many namespaces deleted with orphaning, beside 200 custom types",
		contestants: []contestant{ours, upstreamUnlimited}, maxRuns: 2, adds: collectorController, setup: createTypes(orphanTypes), measure: measureOrphans,
		targets: []target{{metric: jobsGone, most: 3}, {metric: serverCPU, most: 3}},
	},
	{
		name: "garbage-memory", about: "Resident memory beside 50,000 objects: pods, ConfigMaps of 4 KB, Secrets and 10 custom types",
		contestants: []contestant{ours, upstream}, long: true, adds: collectorController,
		shared: true, maxRuns: 1, setup: createManyObjects, measure: measureMemory(time.Minute),
	},
}, stateScenarios()...)
