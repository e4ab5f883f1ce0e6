package main

import "time"

// Controllers by the names both programs know.
const (
	replicaSetController = "replicaset-controller"
	deploymentController = "deployment-controller"
	nodeController       = "node-lifecycle-controller"
	evictionController   = "taint-eviction-controller"
	podGCController      = "pod-garbage-collector-controller"
	namespaceController  = "namespace-controller"
)

// Names that targets refer to.
const (
	startScenario      = "start"
	scaleScenario      = "scale"
	directScenario     = "direct"
	memoryScenario     = "memory"
	memoryLongScenario = "memory-50k"
	handOverScenario   = "hand-over"
	busyScenario       = "hand-over-busy"
	crashScenario      = "crash"
	crashLongScenario  = "crash-10k"
	namespaceScenario  = "namespace"
	floodScenario      = "namespace-300"
	latencyScenario    = "namespace-latency"
	requestsScenario   = "namespace-requests"
	nodesScenario      = "nodes"
	nodesLongScenario  = "nodes-5k"
	rolloutScenario    = "rollout"
	rolloutOneScenario = "rollout-one"
	rolloutEndScenario = "rollout-hand-over"
	rolloutBigScenario = "deployments-5k"
)

// scenarios are all there are, in the order in which they are run and shown.
var scenarios = []scenario{
	{
		name:        startScenario,
		about:       "From the start of the process to the first pod of a ReplicaSet that waits for it; then what it needs when idle",
		contestants: []contestant{ours, upstream}, peer: upstream.name, needs: []string{replicaSetController},
		setup: oneReplicaSet, measure: measureStart,
	},
	{
		name:        scaleScenario,
		about:       "5 new ReplicaSets of 200 pods each, then all to 0; no scheduler and no kubelet",
		contestants: []contestant{ours, upstream, upstreamUnlimited}, peer: upstream.name, slow: []string{upstream.name},
		needs:   []string{replicaSetController},
		measure: measureScale,
	},
	{
		name:        directScenario,
		about:       "The same 1,000 pods created and deleted by 8 parallel clients without a manager: what the API server can do",
		contestants: []contestant{clients},
		measure:     measureDirect,
	},
	{
		name:        handOverScenario,
		about:       "SIGTERM to the leader of two while pods are being made: to the first pod made by the other",
		contestants: []contestant{ours, upstream, upstreamRelease}, peer: upstream.name, slow: []string{upstream.name}, needs: []string{replicaSetController},
		audit: podCreates, measure: measureHandOver,
	},
	{
		name:        busyScenario,
		about:       "The same one second after 10 ReplicaSets of 500 pods have been created: syncs that are under way are long",
		contestants: []contestant{ours, upstreamRelease}, peer: upstreamRelease.name, needs: []string{replicaSetController},
		maxRuns: 2, audit: podCreates, measure: measureBusyHandOver,
	},
	{
		name:        crashScenario,
		about:       "SIGKILL of the leader of two, lease of 15 s: to the first pod made by the other",
		contestants: []contestant{ours, upstream}, peer: upstream.name, needs: []string{replicaSetController},
		maxRuns: 2, audit: podCreates, measure: measureCrash,
	},
	{
		name:        crashLongScenario,
		about:       "The same beside 10,000 pods",
		contestants: []contestant{ours, upstream}, peer: upstream.name, needs: []string{replicaSetController}, long: true,
		audit: podCreates, setup: ownedPods(10_000), measure: measureCrash,
	},
	{
		name:        namespaceScenario,
		about:       "Deletion of one namespace of 30 objects, of 29 such at once, and of 100 empty ones at once",
		contestants: []contestant{ours, oursZeroGrace, upstream}, peer: upstream.name, needs: []string{replicaSetController, namespaceController},
		measure: measureNamespaces,
	},
	{
		name:        floodScenario,
		about:       "Deletion of 300 empty namespaces at once",
		contestants: []contestant{ours, oursZeroGrace, upstream}, peer: upstream.name, needs: []string{replicaSetController, namespaceController},
		maxRuns: 1,
		measure: measureFlood,
	},
	{
		name:        latencyScenario,
		about:       "Deletion of 200 empty namespaces one after the other",
		contestants: []contestant{oursZeroGrace}, needs: []string{replicaSetController, namespaceController}, maxRuns: 1,
		measure: measureLatency,
	},
	{
		name:        requestsScenario,
		about:       "Requests of the manager while an empty namespace is deleted, watches not counted",
		contestants: []contestant{ours, upstream}, peer: upstream.name, needs: []string{replicaSetController, namespaceController}, maxRuns: 1,
		audit: managerRequests, measure: measureRequests,
	},
	{
		name:        nodesScenario,
		about:       "1,000 nodes that renew their leases every 10 s; then one falls silent, with a grace period of 20 s",
		contestants: []contestant{ours, upstream}, peer: upstream.name,
		needs: []string{replicaSetController, nodeController, evictionController, podGCController}, maxRuns: 1,
		audit: managerWrites, setup: manyNodes, measure: measureNodes,
	},
	{
		name:        nodesLongScenario,
		about:       "5,000 nodes, 500 lease renewals a second if the API server takes so many; then one falls silent, with a grace period of 50 s",
		contestants: []contestant{ours, upstream}, peer: upstream.name,
		needs: []string{replicaSetController, nodeController, evictionController, podGCController}, long: true, maxRuns: 1,
		audit: managerWrites, measure: measureManyNodes,
	},
	{
		name:        rolloutScenario,
		about:       "20 Deployments of 50 pods: up, a new template, and one that is turned round when half of the pods are new",
		contestants: []contestant{ours, upstream, upstreamUnlimited}, peer: upstreamUnlimited.name, slow: []string{upstream.name},
		needs: []string{replicaSetController}, adds: []string{deploymentController},
		audit: managerWrites, measure: measureRollouts,
	},
	{
		name:        rolloutOneScenario,
		about:       "A Deployment of one pod, rolled out 20 times",
		contestants: []contestant{ours, upstream}, peer: upstream.name, maxRuns: 2,
		needs: []string{replicaSetController}, adds: []string{deploymentController},
		audit: managerWrites, measure: measureOneRollout,
	},
	{
		name:        rolloutEndScenario,
		about:       "SIGTERM to the leader of two in the middle of 20 rollouts: to the next ReplicaSet resized by the other",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name,
		needs: []string{replicaSetController}, adds: []string{deploymentController}, maxRuns: 2,
		audit: replicaSetWrites, measure: measureRolloutHandOver,
	},
	{
		name:        memoryScenario,
		about:       "Resident memory beside 20,000 pods of 100 ReplicaSets; one control plane for all turns",
		contestants: []contestant{ours, upstream}, peer: upstream.name, needs: []string{replicaSetController},
		shared: true, maxRuns: 1, setup: ownedPods(20_000), measure: measureMemory(20 * time.Second),
	},
	{
		name:        memoryLongScenario,
		about:       "The same with 50,000 pods of 250 ReplicaSets",
		contestants: []contestant{ours, upstream}, peer: upstream.name, needs: []string{replicaSetController}, long: true,
		shared: true, setup: ownedPods(50_000), measure: measureMemory(time.Minute),
	},
	{
		name:        rolloutBigScenario,
		about:       "The same with 5,000 Deployments of one pod and ten older ReplicaSets each",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, long: true,
		needs: []string{replicaSetController}, adds: []string{deploymentController},
		shared: true, maxRuns: 1, setup: ownedDeployments, measure: measureMemory(time.Minute),
	},
}
