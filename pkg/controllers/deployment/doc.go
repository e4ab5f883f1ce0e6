// Package deployment brings the ReplicaSets of every Deployment from what they are to what its spec asks for.
//
// The way of one key:
//
//	event ─▶ key ─▶ barrier ─▶ what was not answered ─▶ claim ─▶ plan ─▶ create, shrink, raise ─▶ status ─▶ history ─▶ when to look again
//
// The package owns the controller reference, the size, minReadySeconds and some annotations of ReplicaSets that a Deployment selects, their creation and
// deletion, and the status of Deployments. It writes the spec of a Deployment only for the annotation deprecated.deployment.rollback.to.
//
// # Where to read
//
//   - reconcile.go tells the way above from top to bottom, in numbered steps. A task is what one sync works on: a value, which no step changes.
//   - rollout.go makes the plan, in one pass, a pure function; plan.go is what comes out, with the order in which it is to be written.
//   - rolling.go, recreate.go and scale.go find sizes: of a rolling update, of a rollout that waits for old pods to be gone, of a Deployment
//     that was scaled or is paused. set.go says what can be relied on of a ReplicaSet, bounds.go how many pods there may and must be.
//   - template.go tells the ReplicaSet of the present template, hash.go names it, create.go makes it.
//   - status.go, conditions.go, annotations.go, history.go and rollback.go are the rest of what a Deployment and its ReplicaSets tell each other.
//     So far everything is a function of what it is given, and nothing depends on the order of a list.
//   - claim.go says which ReplicaSets are ours. read.go, ownership.go, creator.go, resize.go, write.go, rollbackwrite.go and statuswrite.go act.
//   - memory.go is what lasts from one sync to the next: the ledger (ledger.go), without which something wrong would be done, and the
//     throttle (throttle.go), without which too much would be.
//
// # Within the bounds
//
// With a constant spec and no other writer the sizes never add up to more than replicas and surge, unless they did before, and what we
// write never takes the available pods below replicas without maxUnavailable where statuses tell of that many, as long as no others take pods that
// statuses still tell of. Both hold after each single write, whichever of the others are refused or not answered, however old the statuses of
// ReplicaSets are, and however far the cache of pods is behind:
//
//   - Available are as many pods of a ReplicaSet as its size, its status and the cache of pods agree on. What a size has given up is gone.
//   - If there are too few, pods that are not available may go without regard to which of them go first: those that neither the status nor the cache of pods shows
//     as available, and only if both together show too few. Either alone, behind as it may be, would let pods go that are needed.
//   - Sizes rise only into room that is there: what was to be given up and was not keeps its own, and so does a ReplicaSet that may still come to exist.
//   - In exchange for others a ReplicaSet is raised only when it has caught up: its status shows the last reduction. Else pods that are about to go would be
//     counted as available as soon as its size allows for them again: a rollout that is turned round in the middle would lose all its pods.
//   - A scale-down is taken back without that wait, and so is a rollout if no other ReplicaSet keeps pods, or if the ReplicaSet cannot delete its own: the wait would
//     cost all the pods that are still to go. No pod of a ReplicaSet that was raised so is relied on until its status shows the raise. That is enough with our
//     ReplicaSet controller, which looks at another size only when it sees what it has deleted for the last; a delete that was not answered may come later.
//   - Of the pods that an old ReplicaSet gives up only those are free of charge that are expendable: they go before any ready one does.
//   - With minReadySeconds an available pod may go before one that is only ready. So until its status shows the reduction none of the
//     ReplicaSet's pods is relied on, and none of the new one's while it is told to wait longer. What remains is a pod that is ready when its ReplicaSet
//     shrinks, was not when that was planned as far as status and cache told, and stays in place of an available one because of its node or its
//     deletion cost.
//
// # Caches lag, answers get lost
//
// A ledger per Deployment and term remembers what the caches may not show yet. A sync waits until they show all that was written for its key
// ([controller.Barrier]), and the first write of a term is decided on a live read unless they have come as far as the API server had when the term began
// ([controller.Baseline]). In memory only, and so lost with a term, are back-offs and how far a rollout had come.
//
// The name of a new ReplicaSet follows from its template and collisionCount, so a create that was not answered is posted again under the same name
// ([controller.Creates]): both attempts make one. If the template has changed meanwhile, its pods stay reserved until it can no longer come to exist.
// A name that is taken is looked at live: what is ours, selected and equal is the new ReplicaSet, all else raises collisionCount.
//
// A change of a ReplicaSet is a JSON patch that tests its UID and its generation, so a size is changed once at most, and only on the spec that was judged. Annotations
// raise no generation: of a change that is sent twice they may be set twice, late, and the next pass puts them right. A change that was not answered is sent again as
// it was, before anything else is decided; if the Deployment wants the contrary by now it is only looked for until it can no longer be carried out. Adopting and releasing is bound to the
// version, so it may be the first write of a term without a live read of the ReplicaSets; an adoption is preceded by one of the Deployment.
//
// # Where we differ from upstream
//
// One pass writes what upstream writes in one to three, and ends at the same sizes. A pass has one status, so it is in no conflict with itself.
//
// The annotations that tell for which number of replicas a ReplicaSet was sized are part of its size, so scaling always ends. A Deployment with the
// strategy Recreate has no proportions to keep: its rollout gives the sizes. Its old pods are gone when the ReplicaSet controller
// has reported that for the present size, and a live list of pods agrees. A new ReplicaSet that has pods already is scaled beside old ones that are still ending.
//
// A revision that is no positive number is none, and the highest possible one stays. What annotations make of proportions stays within the
// bounds. A rollback to the last revision is one to the highest of the old ones, also while the new one has not got its own.
//
// Conditions keep their places and tell the current message. When another ReplicaSet becomes the new one, or old ones make way for one, the condition
// Progressing starts anew, so a rollout does not inherit a deadline that passed for another. It does not start anew because a manifest with a revision
// in it is applied. A pod that becomes ready, or is replaced, again and again is no progress, as long as the ReplicaSet keeps its size. The deadline is
// looked at when it passes. Progress counts while sizes follow a scaling, too, and failures of ReplicaSets are told while a Deployment is paused.
//
// The generation is observed when its sizes are written. A raise that has to wait for the ReplicaSet controller puts that off. So does one that was made without
// that wait, until the status of the ReplicaSet shows it, and a change that was refused, until a rolling update goes on without it.
//
// A Deployment whose sync failed is synced again after at most a minute and at the rate that all failing Deployments share. Each such sync repeats a rejected
// create, then resizes and writes the status; a rejected rollback ends the sync. A resize that is refused is told, has a back-off, too, and holds up no other: in a rolling update other ReplicaSets give up pods in its place, and
// a rollout does not wait for ever for one that refuses the size that it is to have since the Deployment was scaled.
//
// Something that changes templates on their way into new ReplicaSets is told, with the field: such a ReplicaSet loses its pods, stays to be looked at, and is
// deleted when the next is made, no sooner than after 5 s, then 10 s, up to 5 min. Those are made without pods and raised when they have come back as they were
// sent. A new term knows nothing of that: one more stays behind in the history. One that comes back with other labels or another owner is not ours, and is deleted at once.
//
// The ReplicaSet controller paces the statuses of large ReplicaSets, and steps of a rolling update follow those. An old ReplicaSet whose controller has not
// acted on its last size gives up no more pods for up to 2 s. The wait counts from the last step, and the bounds hold meanwhile.
//
// Of ReplicaSets without replicas the cache keeps no template but a digest, which tells whether it is that of the Deployment; a rollback reads it live.
// A status of which only numbers have changed that decide nothing is written two seconds after the last one at the earliest.
package deployment
