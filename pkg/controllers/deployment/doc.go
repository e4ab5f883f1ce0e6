// Package deployment decides how the ReplicaSets of a Deployment get from what they are to what its spec asks for.
//
// The way of one pass:
//
//	Deployment, its ReplicaSets, counts of their pods ─▶ which is new ─▶ sizes ─▶ one write for each ─▶ status ─▶ when to look again
//
// # Where to read
//
//   - rollout.go tells the way above from top to bottom, in numbered steps; plan.go is what comes out, with the order in which it is to be written.
//   - rolling.go, recreate.go and scale.go find sizes: of a rolling update, of a rollout that waits for old pods to be gone, of a Deployment
//     that was scaled or is paused. set.go says what can be relied on of a ReplicaSet, bounds.go how many pods there may and must be.
//   - template.go tells the ReplicaSet of the present template, hash.go names it, create.go makes it.
//   - status.go, conditions.go, annotations.go, history.go and rollback.go are the rest of what a Deployment and its ReplicaSets tell each other.
//
// Everything is a function of what it is given. Nothing depends on the order of a list.
//
// # Within the bounds
//
// With a constant spec and no other writer the sizes never add up to more than replicas and surge, unless they did before, and what we
// write never takes the available pods below replicas without maxUnavailable, unless statuses told too much of pods that others took. Both hold
// after each single write, however old the statuses of ReplicaSets are:
//
//   - Available are as many pods of a ReplicaSet as its size, its status and the cache of pods agree on. What a size has given up is gone.
//   - A ReplicaSet is raised only when it has caught up: its status shows the last reduction. Else pods that are about to go would be counted as available
//     as soon as its size allows for them again: a rollout that is turned round in the middle would lose all its pods.
//   - Of the pods that an old ReplicaSet gives up only those are free of charge that are expendable: they go before any ready one does.
//   - With minReadySeconds an available pod may go before one that is only ready. So until its status shows the reduction none of the
//     ReplicaSet's pods is relied on. What remains is a pod that becomes ready in the moment between a plan and its execution, and stays in
//     place of an available one because of its node or its deletion cost.
//
// # Where we differ from upstream
//
// One pass writes what upstream writes in one to three, and ends at the same sizes. A pass has one status, so it is in no conflict with itself.
//
// The annotations that tell for which number of replicas a ReplicaSet was sized are part of its size, so scaling always ends. A Deployment with the
// strategy Recreate has no proportions to keep: its rollout gives the sizes. Its old pods are gone when the ReplicaSet controller
// has reported that for the present size, and a live list of pods agrees.
//
// A revision that is no positive number is none, and the highest possible one stays. What annotations make of proportions stays within the
// bounds. Conditions keep their places and tell the current message; when another ReplicaSet becomes the new one, the condition
// Progressing starts anew, so a rollout that is undone does not inherit a deadline that has passed. A pod that becomes ready again and again is
// no progress. The deadline is looked at when it passes.
package deployment
