package main

// target is a promise about medians that this program checks.
type target struct {
	what    string
	of      key
	against key
	most    float64
}

type verdict struct {
	What     string
	Measured float64
	Most     float64
	Met      bool
}

// targets are the numbers we want, for an otherwise idle machine of two cores.
var targets = append([]target{
	{what: "first pod after the start, s", of: key{startScenario, ours.name, firstPod.Name}, most: 1},
	{what: "resident when idle, MiB", of: key{startScenario, ours.name, residentIdle.Name}, most: 40},
	{
		what: "binary size, ours / upstream",
		of:   key{startScenario, ours.name, binarySize.Name}, against: key{startScenario, upstream.name, binarySize.Name}, most: 0.5,
	},
	{what: "1,000 pods, s", of: key{scaleScenario, ours.name, podsCreated.Name}, most: 4},
	{
		what: "1,000 pods, CPU, ours / upstream at 5,000 QPS",
		of:   key{scaleScenario, ours.name, cpuCreating.Name}, against: key{scaleScenario, upstreamUnlimited.name, cpuCreating.Name}, most: 0.8,
	},
	{what: "1,000 pods, CPU of ours, s", of: key{scaleScenario, ours.name, cpuCreating.Name}, most: 0.5},
	{what: "resident beside 20,000 pods, MiB", of: key{memoryScenario, ours.name, resident.Name}, most: 85},
	{what: "hand-over on SIGTERM, s", of: key{handOverScenario, ours.name, takeOver.Name}, most: 0.3},
	{what: "hand-over on SIGTERM in long syncs, s", of: key{busyScenario, ours.name, takeOver.Name}, most: 0.3},
	{what: "failover after SIGKILL, s", of: key{crashScenario, ours.name, takeOver.Name}, most: 15.5},
	{what: "namespace of 30 objects, grace 5 s, s", of: key{namespaceScenario, ours.name, oneNamespace.Name}, most: 5.3},
	{what: "namespace of 30 objects, zero grace, s", of: key{namespaceScenario, oursZeroGrace.name, oneNamespace.Name}, most: 0.6},
	{what: "29 namespaces, zero grace, s", of: key{namespaceScenario, oursZeroGrace.name, manyNamespaces.Name}, most: 3},
	{
		what: "29 namespaces, zero grace / upstream",
		of:   key{namespaceScenario, oursZeroGrace.name, manyNamespaces.Name}, against: key{namespaceScenario, upstream.name, manyNamespaces.Name}, most: 1. / 3,
	},
	{
		what: "29 namespaces, API server CPU, zero grace / upstream",
		of:   key{namespaceScenario, oursZeroGrace.name, manyServerCPU.Name}, against: key{namespaceScenario, upstream.name, manyServerCPU.Name}, most: 1,
	},
	{what: "1,000 nodes, CPU of ours, % of a core", of: key{nodesScenario, ours.name, nodesCPU.Name}, most: 1.5},
	{
		what: "1,000 nodes, CPU, ours / upstream",
		of:   key{nodesScenario, ours.name, nodesCPU.Name}, against: key{nodesScenario, upstream.name, nodesCPU.Name}, most: 0.5,
	},
	{what: "1,000 nodes, writes while healthy", of: key{nodesScenario, ours.name, nodesWrites.Name}, most: 0},
	{
		what: "rollout of 20 x 50 pods, ours / upstream at 5,000 QPS",
		of:   key{rolloutScenario, ours.name, allRolled.Name}, against: key{rolloutScenario, upstreamUnlimited.name, allRolled.Name}, most: 1.1,
	},
	{
		what: "rollout of 20 x 50 pods, CPU, ours / upstream at 5,000 QPS",
		of:   key{rolloutScenario, ours.name, allRolledCPU.Name}, against: key{rolloutScenario, upstreamUnlimited.name, allRolledCPU.Name}, most: 0.6,
	},
	{what: "rollout of 20 x 50 pods, CPU, s", of: key{rolloutScenario, ours.name, allRolledCPU.Name}, most: 1.3},
	{what: "rollout of 20 x 50 pods, conflicts of both loops", of: key{rolloutScenario, ours.name, conflictsOfBoth(", rollout").Name}, most: 2},
	{
		what: "rollouts, Deployment writes, ours / upstream at 5,000 QPS",
		of:   key{rolloutScenario, ours.name, deployWrites.Name}, against: key{rolloutScenario, upstreamUnlimited.name, deployWrites.Name}, most: 0.6,
	},
	{what: "rollouts that nobody disturbs, conflicts", of: key{rolloutScenario, ours.name, calmClashes.Name}, most: 0},
	{
		what: "resident beside 5,000 Deployments, ours / upstream",
		of:   key{rolloutBigScenario, ours.name, resident.Name}, against: key{rolloutBigScenario, upstreamUnlimited.name, resident.Name}, most: 0.5,
	},
	{what: "requests per dependent", of: key{garbageScenario, ours.name, perDependent.Name}, most: 1.05},
	// kube-apiserver rejects objects of a new type for two seconds.
	{what: "namespaces finalized early, discovery 1 s late", of: key{lagScenario, ours.name, finalizedEarly(lags[0]).Name}, most: 0},
	{what: "namespaces finalized early, discovery 5 s late", of: key{lagScenario, ours.name, finalizedEarly(lags[1]).Name}, most: 0},
	{what: "broken webhook, requests in 60 s", of: key{webhookScenario, ours.name, refusedRequests.Name}, most: 5_400},
	{what: "broken webhook, log lines in 60 s", of: key{webhookScenario, ours.name, refusedLines.Name}, most: 600},
	{what: "webhook removed to all deleted, s", of: key{webhookScenario, ours.name, refusedGone.Name}, most: 60},
	{what: "API server away, connection attempts per second", of: key{awayScenario, ours.name, awayDials.Name}, most: 30},
	{what: "API server back to 300 watches resumed, s", of: key{awayScenario, ours.name, watchesAgain.Name}, most: 5},
	{what: "API server back, lists", of: key{awayScenario, ours.name, relists.Name}, most: 0},
	{what: "200 Jobs with orphans gone, s", of: key{orphansScenario, ours.name, jobsGone.Name}, most: 3},
	{what: "200 Jobs with orphans, CPU of the API server, s", of: key{orphansScenario, ours.name, jobsAPI.Name}, most: 3},
}, stateTargets()...)

func (r *results) verdicts(targets []target) []verdict {
	var verdicts []verdict
	for _, t := range targets {
		value, ok := r.median(t.of)
		if !ok {
			continue
		}
		if t.against != (key{}) {
			other, ok := r.median(t.against)
			if !ok || other == 0 {
				continue
			}
			value /= other
		}
		verdicts = append(verdicts, verdict{What: t.what, Measured: value, Most: t.most, Met: value <= t.most})
	}
	return verdicts
}
