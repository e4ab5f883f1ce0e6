// Package ownership claims objects for the controllers that own them: it sorts objects by their relation to
// an owner, and adopts and releases objects.
package ownership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// rejectedFor is the time without further attempts after the API server has rejected the adoption or release
// of an object.
const rejectedFor = time.Minute

// Relation is the relation of an object to an owner.
type Relation int

const (
	Unrelated  Relation = iota // belongs to another controller, or is an orphan that is not selected
	Owned                      // controlled and selected
	Adoptable                  // an orphan that is selected
	Releasable                 // controlled and not selected
)

// RelationOf returns the relation of an object to an owner of a kind.
func RelationOf(owner metav1.Object, kind string, selector labels.Selector, object metav1.Object) Relation {
	selected, orphan := selector.Matches(labels.Set(object.GetLabels())), metav1.GetControllerOfNoCopy(object) == nil
	switch controlled := IsController(owner, kind, object); {
	case object.GetNamespace() != owner.GetNamespace():
		return Unrelated
	case controlled && selected:
		return Owned
	case controlled:
		return Releasable
	case orphan && selected:
		return Adoptable
	}
	return Unrelated
}

// IsController reports whether an object has a controller reference to the owner. A reference with the UID of the
// owner but another name or kind is invalid: for the garbage collector its owner is deleted.
func IsController(owner metav1.Object, kind string, object metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(object)
	return ref != nil && ref.UID == owner.GetUID() && ref.Kind == kind && ref.Name == owner.GetName()
}

// Owner is an object that owns others.
type Owner interface {
	metav1.Object
	runtime.Object
}

// Changer adopts and releases objects of type T for owners of type O.
type Changer[O Owner, T metav1.Object] struct {
	Kind     schema.GroupVersionKind // of the owners
	Noun     string                  // of the objects, in events
	Objects  controller.Cache
	Get      func(ctx context.Context, owner O) (O, error)               // live; see live.GetSame
	Patch    func(ctx context.Context, object T, body []byte) (T, error) // a strategic merge patch
	Recorder record.EventRecorder
	Clock    clock.PassiveClock
}

// State holds the results of earlier changes for one owner. The zero value has none. A state belongs to the
// sync of its owner.
type State struct {
	// Disowned is set if the last adoption was accepted and had no effect: a webhook removed the owner.
	Disowned bool

	rejected map[string]time.Time // time of the next attempt, by versionOf
}

// versionOf identifies an object and the fields that an adoption or release depends on.
func versionOf(object metav1.Object) string {
	fields, _ := json.Marshal([]any{object.GetUID(), object.GetLabels(), object.GetOwnerReferences(), object.GetDeletionTimestamp() != nil})
	return string(fields)
}

// Remaining returns the time until the next attempt for a rejected object, or 0 if there is none.
func (s *State) Remaining(now time.Time) (first time.Duration) {
	for v, until := range s.rejected {
		if first = timing.MinPositive(first, until.Sub(now)); !until.After(now) {
			delete(s.rejected, v)
		}
	}
	return first
}

// Each calls do with 0 to n-1, and returns the number of calls and the reason if it is less than n.
type Each func(n int, do func(i int)) (begun int, err error)

// change is the adoption or release of one object.
type change[T metav1.Object] struct {
	object  T
	adopt   bool
	patched T
	err     error
}

// AdoptAndRelease adopts and releases objects, and returns the adopted ones. Rejections of single objects are
// reported in events and are no errors. The live read of the owner comes after the objects were read: a
// cached owner must not take back objects that were orphaned by its deletion.
func (c *Changer[O, T]) AdoptAndRelease(ctx context.Context, owner O, adopt, release []T, s *State,
	b *controller.ConsistencyBarrier, each Each) (adopted []T, err error) {
	now := c.Clock.Now()
	var failures []error
	var changes []change[T]
	for i, object := range slices.Concat(adopt, release) {
		if !s.rejected[versionOf(object)].After(now) {
			changes = append(changes, change[T]{object: object, adopt: i < len(adopt)})
		}
	}
	if len(changes) > 0 && changes[0].adopt {
		if err := c.checkOwner(ctx, owner); err != nil { // releases need no such owner
			failures = append(failures, err)
			changes = slices.DeleteFunc(changes, func(ch change[T]) bool { return ch.adopt })
		}
	}
	begun, cut := each(len(changes), func(i int) { changes[i].patched, changes[i].err = c.patchOwner(ctx, owner, changes[i]) })
	for _, ch := range changes[:begun] {
		if ch.err == nil {
			b.RequireVersion(c.Objects, ch.patched.GetResourceVersion(), now)
		}
		switch {
		case ch.err == nil && ch.adopt:
			if c.recordAdoption(ctx, owner, s, ch) {
				adopted = append(adopted, ch.patched)
			}
		case ch.err == nil:
			klog.FromContext(ctx).V(2).Info("Released object", "object", klog.KObj(ch.object))
		case outcome.IsNotFound(ch.err, ch.object.GetName()), !ch.adopt && apierrors.IsInvalid(ch.err): // gone
		case outcome.FromError(ch.err) == outcome.Rejected && isOfObject(ch.err):
			c.recordRejection(owner, s, ch, ch.err)
		default:
			failures = append(failures, fmt.Errorf("change the owner of %s %s: %w", c.Noun, ch.object.GetName(), ch.err))
		}
	}
	// More errors would make the log line of the sync too long.
	return adopted, cmp.Or(errors.Join(failures[:min(len(failures), 10)]...), cut)
}

// recordAdoption records an adoption that the API server accepted, and reports whether the object has its new owner.
func (c *Changer[O, T]) recordAdoption(ctx context.Context, owner O, s *State, ch change[T]) bool {
	s.Disowned = !IsController(owner, c.Kind.Kind, ch.patched)
	if s.Disowned {
		ch.object = ch.patched
		c.recordRejection(owner, s, ch, errors.New("a webhook removed or replaced the new owner"))
		return false
	}
	klog.FromContext(ctx).V(2).Info("Adopted object", "object", klog.KObj(ch.object))
	c.Recorder.Eventf(owner, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopted %s: %v", c.Noun, ch.object.GetName())
	return true
}

// isOfObject reports whether a rejection concerns one object. A webhook that names no code rejects with a 400. A 400
// without a Status is of a load balancer.
func isOfObject(err error) bool {
	badRequest := apierrors.IsBadRequest(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	return badRequest || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// checkOwner returns an error if the owner is deleted or being deleted.
func (c *Changer[O, T]) checkOwner(ctx context.Context, owner O) error {
	now, err := c.Get(ctx, owner)
	if err == nil && now.GetDeletionTimestamp() != nil {
		return fmt.Errorf("adopt %ss: %s %s is being deleted since %v", c.Noun, c.Kind.Kind, owner.GetName(), now.GetDeletionTimestamp())
	}
	return err
}

// recordRejection reports a rejected change, and prevents another attempt for a while.
func (c *Changer[O, T]) recordRejection(owner O, s *State, ch change[T], err error) {
	reason, verb := "FailedRelease", "releasing"
	if ch.adopt {
		reason, verb = "FailedAdopt", "adopting"
	}
	c.Recorder.Eventf(owner, corev1.EventTypeWarning, reason, "Error %s %s %s: %v", verb, c.Noun, ch.object.GetName(), err)
	if s.rejected == nil {
		s.rejected = map[string]time.Time{}
	}
	s.rejected[versionOf(ch.object)] = c.Clock.Now().Add(rejectedFor)
}

// patchOwner adds or removes the reference to the owner. With the UID and the version of the object in the patch,
// the API server rejects the patch if the object was changed or replaced since the decision. Other references
// stay.
func (c *Changer[O, T]) patchOwner(ctx context.Context, owner O, ch change[T]) (patched T, err error) {
	if controller.Draining(ctx) {
		return patched, controller.ErrDraining
	}
	var ref any = map[string]any{"$patch": "delete", "uid": owner.GetUID()}
	if ch.adopt {
		ref = metav1.NewControllerRef(owner, c.Kind)
	}
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ch.object.GetUID(), "resourceVersion": ch.object.GetResourceVersion(), "ownerReferences": []any{ref},
	}})
	return c.Patch(ctx, ch.object, body)
}
