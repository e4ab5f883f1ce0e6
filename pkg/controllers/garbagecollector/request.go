package garbagecollector

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/outcome"
)

// removal is what to send to delete an object that was decided about. The API server refuses it if the object is another, or has
// changed since it was seen, and so it proves that references and finalizers are those that were decided about. byUID leaves the latter out if it may.
func removal(o object, policy metav1.DeletionPropagation, byUID bool) metav1.DeleteOptions {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.uid}}
	if byUID && byDefault(o, policy) {
		return options
	}
	options.PropagationPolicy = &policy
	if o.version != "" {
		options.Preconditions.ResourceVersion = &o.version
	}
	return options
}

// byDefault reports whether an object is deleted in this way if nothing is said of it. A policy that is said replaces the one that a user may just
// have chosen; if none is, what he chose stays.
func byDefault(o object, policy metav1.DeletionPropagation) bool {
	switch policy {
	case metav1.DeletePropagationOrphan:
		return o.marks.has(orphaning)
	case metav1.DeletePropagationForeground:
		return o.marks.has(foreground) && !o.marks.has(orphaning)
	}
	return !slices.Contains(orphanedByDefault, o.resource)
}

// orphanedByDefault are the types of which kube-apiserver v1.37 makes orphans of dependents if nothing is said. It asks its strategy in
// one version of some of them only.
var orphanedByDefault = []schema.GroupResource{{Resource: "replicationcontrollers"}, {Group: "batch", Resource: "jobs"}, {Group: "batch", Resource: "cronjobs"}}

// needsLive reports whether an object has to be read live before it is deleted: its API may not keep to preconditions, or its version is not known.
func needsLive(o object, local bool) bool { return o.live == nil && (!local || o.version == "") }

// patch is a change of metadata.
type patch struct {
	as   types.PatchType
	body []byte
}

// patchable says how an object can be patched. A strategic patch names single references and needs no list of all, but only the types that are
// built into the API server know it, and it tells references apart by their UID.
func patchable(o object, builtIn bool) types.PatchType {
	uids := map[types.UID]bool{}
	for _, r := range o.refs {
		if uids[r.uid] {
			return types.MergePatchType
		}
		uids[r.uid] = true
	}
	if builtIn {
		return types.StrategicMergePatchType
	}
	return types.MergePatchType
}

// errNotLive: a merge patch replaces a list, so all of it has to be known.
var errNotLive = errors.New("the object was not read live")

// released takes references away that were decided about, named by their positions. It goes with the version: somebody may just be putting one of them
// right, with its UID as it was.
func released(o object, as types.PatchType, refs []int) (patch, error) {
	if as != types.StrategicMergePatchType {
		return without(o, as, refs)
	}
	return build(as, map[string]any{"uid": o.uid, "resourceVersion": o.version, "ownerReferences": deletions(o, refs)})
}

// without takes references away, named by their positions, whatever else they say.
func without(o object, as types.PatchType, refs []int) (patch, error) {
	if as == types.StrategicMergePatchType {
		// Repeated, or on an object that has changed otherwise, it does the same: so it goes without a version.
		return build(as, map[string]any{"uid": o.uid, "ownerReferences": deletions(o, refs)})
	}
	if o.live == nil {
		return patch{}, fmt.Errorf("take references away: %w", errNotLive)
	}
	left, out := []metav1.OwnerReference{}, map[int]bool{}
	for _, n := range refs {
		out[n] = true
	}
	for n, ref := range o.live.OwnerReferences {
		if !out[n] {
			left = append(left, ref)
		}
	}
	return build(as, map[string]any{"uid": o.uid, "resourceVersion": o.version, "ownerReferences": left})
}

// deletions are the directives of a strategic patch that take references away.
func deletions(o object, refs []int) []map[string]any {
	directives := make([]map[string]any, 0, len(refs))
	for _, n := range refs {
		directives = append(directives, map[string]any{"$patch": "delete", "uid": o.refs[n].uid})
	}
	return directives
}

// unblocked has references no longer hold their owner, named by their positions.
func unblocked(o object, as types.PatchType, refs []int) (patch, error) {
	if as == types.StrategicMergePatchType {
		changes := make([]map[string]any, 0, len(refs))
		for _, n := range refs {
			changes = append(changes, map[string]any{"uid": o.refs[n].uid, "blockOwnerDeletion": false})
		}
		// With the version: a reference that has gone meanwhile would come back with nothing but a UID.
		return build(as, map[string]any{"uid": o.uid, "resourceVersion": o.version, "ownerReferences": changes})
	}
	if o.live == nil {
		return patch{}, fmt.Errorf("unblock references: %w", errNotLive)
	}
	all := slices.Clone(o.live.OwnerReferences)
	for _, n := range refs {
		all[n].BlockOwnerDeletion = new(false)
	}
	return build(as, map[string]any{"uid": o.uid, "resourceVersion": o.version, "ownerReferences": all})
}

// finalized takes a finalizer away. It holds for the object and the version that were read: a namesake keeps its own.
func finalized(o object, finalizer string) (patch, error) {
	if o.live == nil {
		return patch{}, fmt.Errorf("take a finalizer away: %w", errNotLive)
	}
	left := slices.DeleteFunc(slices.Clone(o.live.Finalizers), func(f string) bool { return f == finalizer })
	if left == nil {
		left = []string{} // null would do the same, but this is what it is
	}
	return build(types.MergePatchType, map[string]any{"uid": o.uid, "resourceVersion": o.version, "finalizers": left})
}

func build(as types.PatchType, metadata map[string]any) (patch, error) {
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	return patch{as, body}, err
}

// outcome is what came of a write.
type requestResult string

const (
	done     requestResult = "done"     // the API server did it
	gone     requestResult = "gone"     // there is no such object any more: as good as done
	conflict requestResult = "conflict" // the object is not as it was seen
	unfit    requestResult = "unfit"    // it does not know this kind of patch
	rejected requestResult = "rejected" // it may not be, and asking again soon will not help: a policy, or a right that is missing
	failed   requestResult = "failed"   // it has to be tried again, after a pause
)

// outcomeOf reads what a write to an object of a name was answered. A lost answer is a failure: all our writes may be repeated.
func outcomeOf(err error, name string) requestResult {
	var status apierrors.APIStatus
	if outcome.FromError(err) == outcome.Done {
		return done
	}
	if !errors.As(err, &status) {
		return failed
	}
	switch s := status.Status(); {
	case outcome.IsNotFound(err, name), s.Code == http.StatusUnprocessableEntity && isAboutUID(s):
		return gone
	case s.Code == http.StatusConflict && s.Reason == metav1.StatusReasonConflict:
		return conflict
	case s.Code == http.StatusUnsupportedMediaType:
		return unfit
	case s.Code == http.StatusBadRequest, s.Code == http.StatusForbidden, s.Code == http.StatusMethodNotAllowed, s.Code == http.StatusUnprocessableEntity:
		return rejected
	}
	return failed
}

// isAboutUID reports whether a patch was refused because the object of this name has another UID.
func isAboutUID(s metav1.Status) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// manyConflicts is how many conflicts in a row an object is given before it is deleted by its UID alone. An object that somebody else keeps
// writing to would live for ever.
const manyConflicts = 3

// retry is what follows a conflict.
type retry string

const (
	decideAnew  retry = "decide anew"   // something has changed that the decision was made on
	repeat      retry = "repeat"        // nothing has: the same, with the version that was read
	repeatByUID retry = "repeat by UID" // and this time whatever the version
)

// afterConflict says how a delete goes on that was decided on was and answered with a conflict, as the nth in a row. now is the same object as it was
// read then.
func afterConflict(was, now object, nth int) retry {
	switch {
	case !was.sameFor(now):
		return decideAnew
	case nth >= manyConflicts:
		return repeatByUID
	}
	return repeat
}
