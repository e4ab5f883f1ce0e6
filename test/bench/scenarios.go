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

	garbageScenario        = "garbage"
	garbageDirectScenario  = "garbage-direct"
	garbageOwnersScenario  = "garbage-owners"
	garbageRingScenario    = "garbage-ring"
	garbageTypeScenario    = "garbage-new-type"
	garbageBrokenScenario  = "garbage-broken-type"
	garbageEndScenario     = "garbage-hand-over"
	garbageStartScenario   = "garbage-start"
	garbageTermScenario    = "garbage-pods-hand-over"
	garbageMemoryScenario  = "garbage-memory"
	garbageMemory2Scenario = "garbage-memory-50k"

	lagScenario     = "discovery-lag"
	webhookScenario = "broken-webhook"
	awayScenario    = "api-server-away"
	orphansScenario = "orphans"
)

// scenarios are all there are, in the order in which they are run and shown.
var scenarios = append([]scenario{
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
	{
		name:        garbageScenario,
		about:       "An owner of 1,000 ConfigMaps and 1,000 pods; a tree of 111 in the foreground; an owner that leaves 100 orphans",
		contestants: []contestant{ours, upstream, upstreamUnlimited}, peer: upstreamUnlimited.name, slow: []string{upstream.name},
		needs: []string{replicaSetController}, adds: []string{collectorController},
		audit: managerRequests, measure: measureGarbage,
	},
	{
		name:        garbageDirectScenario,
		about:       "The same 2,000 objects deleted by 8 parallel clients: what the API server can do",
		contestants: []contestant{clients},
		measure:     measureDirectGarbage,
	},
	{
		name:        garbageOwnersScenario,
		about:       "100 owners of 100 ConfigMaps deleted at once",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 1,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		measure: measureManyOwners,
	},
	{
		name:        garbageRingScenario,
		about:       "Three that hold each other, all deleted in the foreground",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 1,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		measure: measureRing,
	},
	{
		name:        garbageTypeScenario,
		about:       "A CustomResourceDefinition is made, an owner of the type is deleted in the foreground: until it is gone; five times",
		contestants: []contestant{ours, upstream}, peer: upstream.name, slow: []string{upstream.name},
		needs: []string{replicaSetController}, adds: []string{collectorController},
		measure: measureNewTypes,
	},
	{
		name:        garbageBrokenScenario,
		about:       "Start beside a type whose conversion webhook is away: until an owner of other types is gone",
		contestants: []contestant{ours, upstream}, peer: upstream.name, slow: []string{upstream.name},
		needs: []string{replicaSetController}, adds: []string{collectorController},
		setup: brokenType, measure: measureBrokenStart,
	},
	{
		name:        garbageEndScenario,
		about:       "SIGTERM to the leader of two in the middle of 10,000 removals: to the next one by the other",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 2,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		audit: mapDeletes, measure: measureGarbageHandOver,
	},
	{
		name:        garbageStartScenario,
		about:       "Start, as above, with the garbage collector and without",
		contestants: []contestant{ours, oursWithout, upstream, upstreamWithout}, peer: oursWithout.name, slow: []string{upstream.name, upstreamWithout.name},
		needs: []string{replicaSetController}, adds: []string{collectorController},
		setup: oneReplicaSet, measure: measureStart,
	},
	{
		name:        garbageTermScenario,
		about:       "SIGTERM to the leader of two while pods are being made, with the garbage collector and without",
		contestants: []contestant{ours, oursWithout}, peer: oursWithout.name,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		audit: podCreates, measure: measureHandOver,
	},
	{
		name:        lagScenario,
		about:       "API server away for 20 s, then without custom types in its discovery: 20 Terminating namespaces that objects of these hold",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 1,
		needs: []string{replicaSetController, namespaceController}, adds: []string{collectorController},
		measure: measureDiscoveryLag,
	},
	{
		name:        webhookScenario,
		about:       "An owner of 2,000 ConfigMaps whose deletion a broken webhook refuses for a minute",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 1,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		audit: managerRequests, measure: measureBrokenWebhook,
	},
	{
		name:        awayScenario,
		about:       "API server away for 30 s beside 300 custom types: connection attempts, and watches on its return",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 1,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		shared: true, setup: manyTypes(awayTypes), measure: measureAway,
	},
	{
		name:        orphansScenario,
		about:       "200 Jobs in as many namespaces deleted with orphaning, beside 200 custom types",
		contestants: []contestant{ours, upstreamUnlimited}, peer: upstreamUnlimited.name, maxRuns: 2,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		setup: manyTypes(orphanTypes), measure: measureOrphans,
	},
	{
		name:        garbageMemory2Scenario,
		about:       "Resident memory beside 50,000 objects, of pods, ConfigMaps of 4 KB, Secrets and 10 custom types; one control plane for all turns",
		contestants: []contestant{ours, oursWithout, upstream, upstreamWithout}, peer: upstream.name, long: true,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		shared: true, maxRuns: 1, setup: manyObjects(0.5), measure: measureMemory(idleAfterFill),
	},
	{
		name:        garbageMemoryScenario,
		about:       "The same with 100,000 objects and 20 custom types",
		contestants: []contestant{ours, oursWithout, upstream, upstreamWithout}, peer: upstream.name, long: true,
		needs: []string{replicaSetController}, adds: []string{collectorController},
		shared: true, maxRuns: 1, setup: manyObjects(1), measure: measureMemory(idleAfterFill),
	},
}, stateScenarios()...)
