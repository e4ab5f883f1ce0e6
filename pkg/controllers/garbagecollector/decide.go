package garbagecollector

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// action is the change that a decision about an object demands.
type action string

const (
	keep    action = "keep"
	finish  action = "finish"  // the object is being deleted with a finalizer of the collector
	await   action = "wait"    // the state of an owner is unknown
	release action = "release" // remove references to owners that are absent or wait for dependents
	remove  action = "remove"  // delete the object
)

// decision is an action with its arguments.
type decision struct {
	action action
	refs   []int                      // of release: positions of the references
	policy metav1.DeletionPropagation // of remove
}

// decide returns the decision about an object by the states of its owners. One solid owner keeps the object. One
// unknown owner keeps the object from being deleted. owns: other objects refer to the object.
func decide(m marks, owners []ownerState, owns bool) decision {
	count := map[ownerState]int{}
	var dangling []int
	for n, state := range owners {
		count[state]++
		if state == absent || state == waitingForDependents {
			dangling = append(dangling, n)
		}
	}
	switch {
	case m.finishing():
		return decision{action: finish}
	case m.has(terminating), len(owners) == 0:
		return decision{action: keep}
	case count[solid] > 0 && len(dangling) > 0:
		return decision{action: release, refs: dangling}
	case count[solid] > 0:
		return decision{action: keep}
	case count[unknown] > 0:
		return decision{action: await}
	case count[waitingForDependents] > 0 && owns: // the owner goes after all levels of dependents
		return decision{action: remove, policy: metav1.DeletePropagationForeground}
	case m.has(orphaning):
		return decision{action: remove, policy: metav1.DeletePropagationOrphan}
	case m.has(foreground):
		return decision{action: remove, policy: metav1.DeletePropagationForeground}
	}
	return decision{action: remove, policy: metav1.DeletePropagationBackground}
}
