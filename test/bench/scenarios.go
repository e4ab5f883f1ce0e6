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
	collectorController  = "garbage-collector-controller"
)

// Names that targets refer to.
const (
	startScenario      = "start"
	scaleScenario      = "scale"
	memoryScenario     = "memory"
	handOverScenario   = "hand-over"
	busyScenario       = "hand-over-busy"
	crashScenario      = "crash"
	namespaceScenario  = "namespace"
	nodesScenario      = "nodes"
	rolloutScenario    = "rollout"
	rolloutBigScenario = "deployments-5k"

	garbageScenario       = "garbage"
	garbageMemoryScenario = "garbage-memory"

	lagScenario     = "discovery-lag"
	webhookScenario = "broken-webhook"
	awayScenario    = "api-server-away"
	orphansScenario = "orphans"
)

var scenarios = append([]scenario{
	{
		name:        startScenario,
		about:       "From the start of the process to the first pod of a ReplicaSet that waits for it; then what it needs when idle",
		contestants: []contestant{ours, upstream}, peer: upstream.name,
		setup: oneReplicaSet, measure: measureStart,
	},
	{
		name:        scaleScenario,
		about:       "5 new ReplicaSets of 200 pods each, then all to 0; no scheduler and no kubelet",
		contestants: []contestant{ours, upstream, upstreamUnlimited}, peer: upstream.name, slow: []string{upstream.name},
		measure: measureScale,
	},
	{
		name:        handOverScenario,
		about:       "SIGTERM to the leader of two while pods are being made: to the first pod made by the other",
		contestants: []contestant{ours, upstream, upstreamRelease}, peer: upstream.name, slow: []string{upstream.name},
		audit: podCreates, measure: measureHandOver,
	},
	{
		name:        busyScenario,
		about:       "The same one second after 10 ReplicaSets of 500 pods have been created: syncs that are under way are long",
		contestants: []contestant{ours, upstreamRelease}, peer: upstreamRelease.name,
		maxRuns: 2, audit: podCreates, measure: measureBusyHandOver,
	},
	{
		name:        crashScenario,
		about:       "SIGKILL of the leader of two, lease of 15 s: to the first pod made by the other",
		contestants: []contestant{ours, upstream}, peer: upstream.name,
		maxRuns: 2, audit: podCreates, measure: measureCrash,
	},
	{
		name:        namespaceScenario,
		about:       "Deletion of one namespace of 30 objects, and of 29 such at once",
		contestants: []contestant{ours, oursZeroGrace, upstream}, peer: upstream.name,
		measure: measureNamespaces,
	},
	{
		name:        nodesScenario,
		about:       "1,000 nodes that renew their leases every 10 s",
		contestants: []contestant{ours, upstream}, peer: upstream.name,
		maxRuns: 1,
		audit:   managerWrites, setup: manyNodes, measure: measureNodes,
	},
	{
		name:        rolloutScenario,
		about:       "20 Deployments of 50 pods: up, and a new template",
		contestants: []contestant{ours, upstream, upstreamUnlimited}, peer: upstreamUnlimited.name, slow: []string{upstream.name},
		adds:  []string{deploymentController},
		audit: managerWrites, measure: measureRollouts,
	},
	{
		name:        memoryScenario,
		about:       "Resident memory beside 20,000 pods of 100 ReplicaSets; one control plane for all turns",
		contestants: []contestant{ours, upstream}, peer: upstream.name,
		shared: true, maxRuns: 1, setup: ownedPods(20_000), measure: measureMemory(20 * time.Second),
	},
	{
		name:        rolloutBigScenario,
		about:       "The same with 5,000 Deployments of one pod and ten older ReplicaSets each",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, long: true,
		adds:   []string{deploymentController},
		shared: true, maxRuns: 1, setup: ownedDeployments, measure: measureMemory(time.Minute),
	},
	{
		name:        garbageScenario,
		about:       "An owner of 1,000 ConfigMaps and 1,000 pods is deleted",
		contestants: []contestant{ours, upstream, upstreamUnlimited}, peer: upstreamUnlimited.name, slow: []string{upstream.name},
		adds:  []string{collectorController},
		audit: managerRequests, measure: measureGarbage,
	},
	{
		name:        lagScenario,
		about:       "API server away for 20 s, then without custom types in its discovery: 20 Terminating namespaces that objects of these hold",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 1,
		adds:    []string{collectorController},
		measure: measureDiscoveryLag,
	},
	{
		name:        webhookScenario,
		about:       "An owner of 2,000 ConfigMaps whose deletion a broken webhook refuses for a minute",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 1,
		adds:  []string{collectorController},
		audit: managerRequests, measure: measureBrokenWebhook,
	},
	{
		name:        awayScenario,
		about:       "API server away for 30 s beside 300 custom types: connection attempts, and watches on its return",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 1,
		adds:   []string{collectorController},
		shared: true, setup: manyTypes(awayTypes), measure: measureAway,
	},
	{
		name:        orphansScenario,
		about:       "200 Jobs in as many namespaces deleted with orphaning, beside 200 custom types",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 2,
		adds:  []string{collectorController},
		setup: manyTypes(orphanTypes), measure: measureOrphans,
	},
	{
		name:        garbageMemoryScenario,
		about:       "Resident memory beside 50,000 objects, of pods, ConfigMaps of 4 KB, Secrets and 10 custom types; one control plane for all turns",
		contestants: []contestant{ours, upstream}, peer: upstream.name, long: true,
		adds:   []string{collectorController},
		shared: true, maxRuns: 1, setup: manyObjects, measure: measureMemory(idleAfterFill),
	},
}, stateScenarios()...)
