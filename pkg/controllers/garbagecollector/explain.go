package garbagecollector

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// blocker is a dependent that holds an owner, with what is known of why it is still there.
type blocker struct {
	object     object
	finalizers []string  // of others, if it was read live
	own        int       // dependents of its own that hold it
	unknown    reference // an owner of it that nobody can tell anything about
	why        string    // why nobody can; empty: there is no such owner
	refused    string    // the last answer to its deletion, if that was refused
}

// blind is a type that could not be looked at.
type blind struct{ resource, why string }

// most is how many blockers and types an explanation names.
const most = 3

// String says what holds the dependent.
func (b blocker) String() string {
	name := fmt.Sprintf("%s %q", b.object.resource, named(b.object))
	switch m := b.object.marks; {
	case m.has(terminating) && len(b.finalizers) > 0:
		return fmt.Sprintf("%s is held by finalizers %s", name, strings.Join(slices.Sorted(slices.Values(b.finalizers)), ", "))
	case m.waiting() && b.own > 0:
		return fmt.Sprintf("%s waits for %d dependents of its own", name, b.own)
	case m.has(terminating | held):
		return name + " is held by finalizers"
	case m.has(terminating):
		return name + " is being deleted"
	case b.why != "":
		return fmt.Sprintf("%s is not deleted, because its owner %s %s %q cannot be looked for: %s",
			name, b.unknown.apiVersion, b.unknown.kind, b.unknown.name, b.why)
	case b.refused != "":
		return fmt.Sprintf("%s cannot be deleted: %s", name, b.refused)
	}
	return name + " is not deleted yet"
}

// named returns the name of an object as users write it.
func named(o object) string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "/" + o.name
}

var problemTexts = map[problem]string{
	unparsable:   "its apiVersion cannot be read",
	outOfReach:   "its kind lives in namespaces, and the dependent in none",
	undiscovered: "the API server cannot tell what is in its group",
	unserved:     "its kind is not known",
	otherVersion: "its version is not served",
	ambiguous:    "several types are of its kind",
	impossible:   "its name cannot be that of an object",
	unusable:     "its name cannot be that of an object",
}

// text is the problem in words.
func (p problem) text() string { return problemTexts[p] }

// text is what has been answered about an owner, in words, if that says nothing about it.
func (s saying) text() string {
	switch s {
	case refused:
		return "its API refuses to show it"
	case unnamed:
		return "its API answers with a 404 that does not name it"
	}
	return "its API gives no answer, or an error"
}

// explainForeground is the text of the event ForegroundDeletionBlocked. all counts the blockers, of which some are known in detail.
func explainForeground(all int, some []blocker, unseen []blind) string {
	var text strings.Builder
	if all > 0 {
		fmt.Fprintf(&text, "Deletion waits for %s with blockOwnerDeletion: ", counted(all, "dependent"))
		for n, b := range some[:min(len(some), most)] {
			if n > 0 {
				text.WriteString("; ")
			}
			text.WriteString(b.String())
		}
		if more := all - min(len(some), most); more > 0 {
			fmt.Fprintf(&text, "; and %d more", more)
		}
		text.WriteString(".")
	}
	return strings.TrimSpace(text.String() + " " + explainBlindness(unseen))
}

// explainOrphaning is the text of the event OrphanDeletionBlocked. It names the one way out that is the user's to take.
func explainOrphaning(refs int, unseen []blind) string {
	var text []string
	if refs > 0 {
		text = append(text, fmt.Sprintf("Deletion waits until %s no longer %s to this object.",
			counted(refs, "dependent"), map[bool]string{true: "refers", false: "refer"}[refs == 1]))
	}
	if blindness := explainBlindness(unseen); blindness != "" {
		text = append(text, blindness, fmt.Sprintf("If there are no dependents of these types that are to be kept, remove the finalizer %s.", metav1.FinalizerOrphanDependents))
	}
	return strings.Join(text, " ")
}

func explainBlindness(unseen []blind) string {
	if len(unseen) == 0 {
		return ""
	}
	unseen = slices.SortedFunc(slices.Values(unseen), func(a, b blind) int { return strings.Compare(a.resource, b.resource) })
	var names []string
	for _, b := range unseen[:min(len(unseen), most)] {
		names = append(names, b.resource)
	}
	if more := len(unseen) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("Whether there are dependents of %s cannot be told: %s.", strings.Join(names, ", "), unseen[0].why)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
