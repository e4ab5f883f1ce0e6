package garbagecollector

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controller"
)

// weighed is what the rulings on all owners of an object amount to.
type weighed struct {
	owners []verdict
	ask    []int         // positions of references whose owners have to be asked for first
	after  time.Duration // when to look again if nothing happens; 0: there is no need
	held   string        // why the first of the unknown owners is unknown; a label of metrics
}

// weigh joins rulings.
func weigh(rulings []ruling) weighed {
	var w weighed
	for n, r := range rulings {
		w.owners = append(w.owners, r.verdict)
		if r.ask {
			w.ask = append(w.ask, n)
		}
		w.after, w.held = controller.MinPositive(w.after, r.after), cmp.Or(w.held, r.held)
	}
	return w
}

// sight is what there is to know of an object to decide about it.
type sight struct {
	object object
	owners []verdict // one per reference
	owns   bool      // others refer to it
}

// deed is what is to be done about an object.
type deed string

const (
	keep    deed = "keep"
	let     deed = "finish"  // it is being deleted, and is ours to let go: see finish
	await   deed = "wait"    // until more is known of its owners
	release deed = "release" // take references away that hold nothing any more
	remove  deed = "remove"  // delete it
)

// action is a deed with what it needs.
type action struct {
	do     deed
	refs   []int                      // release: positions of the references
	policy metav1.DeletionPropagation // remove
}

// decide says what to do about an object. One owner that lives keeps it; one of whom nothing is known keeps it from being removed.
func decide(s sight) action {
	count := map[verdict]int{}
	var dead []int
	for n, v := range s.owners {
		count[v]++
		if v == absent || v == waiting {
			dead = append(dead, n)
		}
	}
	marks := s.object.marks
	switch {
	case marks.finishing():
		return action{do: let}
	case marks.has(terminating), len(s.owners) == 0, count[present] == len(s.owners):
		return action{do: keep}
	case count[present] > 0 && len(dead) > 0:
		return action{do: release, refs: dead}
	case count[present] > 0:
		return action{do: keep}
	case count[unknown] > 0:
		return action{do: await}
	case count[waiting] > 0 && s.owns:
		return action{do: remove, policy: metav1.DeletePropagationForeground} // so that its owner goes after all that is below it
	case marks.has(orphaning):
		return action{do: remove, policy: metav1.DeletePropagationOrphan}
	case marks.has(foreground):
		return action{do: remove, policy: metav1.DeletePropagationForeground}
	}
	return action{do: remove, policy: metav1.DeletePropagationBackground}
}
