package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/controllers/internal/writelimit"
)

// whileItWaits decides about an object while no request can be sent, has something happen then, and lets it go on.
func (s *shell) whileItWaits(t *testing.T, key id, happens func()) {
	t.Helper()
	var held []*writelimit.Write
	for n := 0; ; n++ {
		w := s.writer.slots.Acquire(t.Context(), cache.NewObjectName("a", fmt.Sprint(n)), s.clock.Now())
		if w == nil {
			break
		}
		held = append(held, w)
	}
	done := make(chan error)
	go func() {
		_, err := s.reconcileObject(t.Context(), key)
		done <- err
	}()
	synctest.Wait()
	happens()
	for _, w := range held {
		s.writer.slots.Release(w)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A request may have to wait until it can be sent. Meanwhile the user may change his mind, and events may come.
func TestWhatWasDecidedIsLookedAtAgainWhenTheRequestCanBeSent(t *testing.T) {
	owner := func() *thing { return newThing("a", "o", uid(1)) }
	waits := func() *thing { return owner().finalizedBy("foregroundDeletion").deleted() }
	for _, tt := range []struct {
		name    string
		before  *thing // the owner as its feed shows it; nil: it does not
		get     func(nth int) (*thing, error)
		happens func(s *shell)
		sent    int
	}{
		{"nothing happens", waits(), func(int) (*thing, error) { return waits(), nil }, func(*shell) {}, 1},
		{"the owner is to make orphans, as a new answer says", waits(), func(nth int) (*thing, error) {
			if nth == 1 {
				return waits(), nil
			}
			return owner().finalizedBy("orphan").deleted(), nil
		}, func(s *shell) { s.clock.Step(liveFor + 1) }, 0},
		{"the owner still waits, as a new answer says", waits(), func(int) (*thing, error) { return waits(), nil }, func(s *shell) { s.clock.Step(liveFor + 1) }, 1},
		{"the feed shows an owner that lives", nil, func(int) (*thing, error) { return nil, notFound("o") }, func(s *shell) { _ = s.feed.Add(owner()) }, 0},
		{"the owner is still not there", nil, func(int) (*thing, error) { return nil, notFound("o") }, func(s *shell) { s.clock.Step(liveFor + 1) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShell(t)
				if tt.before != nil {
					_ = s.feed.Add(tt.before)
				}
				_ = s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(ref("v1", "ConfigMap", "o", uid(1))))
				s.clock.Step(time.Minute)
				s.get = func(_ string, nth int) (*thing, error) { return tt.get(nth) }
				s.whileItWaits(t, keyOf(uid(2)), func() { tt.happens(s) })
				if got := s.sent(); len(got) != tt.sent {
					t.Errorf("%d deletes were sent, want %d", len(got), tt.sent)
				}
			})
		})
	}
}

// A delete always carries the resource version that the decision was based on.
func TestDeletesCarryTheVersionAfterConflicts(t *testing.T) {
	s := newShell(t)
	owner := ref("v1", "ConfigMap", "o", uid(1))
	_ = s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(owner))
	s.clock.Step(time.Minute)
	s.get = func(name string, nth int) (*thing, error) {
		if name != "d" {
			return nil, notFound(name)
		}
		d := newThing("a", "d", uid(2)).at(fmt.Sprint(5 + nth)).owned(owner)
		if nth > 3 {
			d.finalizedBy("x/y")
		}
		return d, nil
	}
	s.remove = func(nth int) error {
		if nth < 5 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "d", errors.New("version"))
		}
		return nil
	}
	if _, err := s.reconcileObject(context.Background(), keyOf(uid(2))); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, options := range s.sent() {
		switch v := options.Preconditions.ResourceVersion; {
		case v == nil:
			got = append(got, "")
		default:
			got = append(got, *v)
		}
	}
	if want := []string{"5", "6", "7", "8", "9"}; !slices.Equal(got, want) {
		t.Errorf("deletes carry the versions %q, want %q", got, want)
	}
}

// The owner was found alive because its own event was late. A moment later it is deleted, and the event that says so is the only one that comes.
func TestAnAnswerFromBeforeTheDeletionOfAnOwnerHoldsNobody(t *testing.T) {
	owner := func() *thing { return newThing("a", "o", uid(1)).at("3") }
	waits := func() *thing { return owner().at("4").finalizedBy("foregroundDeletion").deleted() }
	for _, tt := range []struct {
		name    string
		happens func(t *testing.T, s *shell)
		then    func() (*thing, error) // what the API server answers from then on
	}{
		{"it waits for its dependents", func(t *testing.T, s *shell) { check(t, s.feed.Add(waits())) }, func() (*thing, error) { return waits(), nil }},
		{"it is gone, as an event says", func(t *testing.T, s *shell) { check(t, s.feed.Delete(owner().at("4"))) }, func() (*thing, error) { return nil, notFound("o") }},
		{"it is gone, and the first list lacks it", func(_ *testing.T, s *shell) {
			s.types.types[configMaps.GroupResource].standing = standing{current, s.clock.Now().Add(-notifyDelay)}
		}, func() (*thing, error) { return nil, notFound("o") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShell(t)
			check(t, s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(ref("v1", "ConfigMap", "o", uid(1)))))
			s.clock.Step(time.Minute)
			s.types.types[configMaps.GroupResource].standing = standing{listing, began}
			s.get = func(string, int) (*thing, error) { return owner(), nil }
			look := func() time.Duration {
				result, err := s.reconcileObject(t.Context(), keyOf(uid(2)))
				check(t, err)
				return result.RequeueAfter
			}
			look()
			s.clock.Step(liveFor / 2)
			s.types.types[configMaps.GroupResource].standing = standing{current, began}
			tt.happens(t, s)
			s.get = func(string, int) (*thing, error) { return tt.then() }
			waited := time.Duration(0)
			for len(s.sent()) == 0 {
				after := look()
				if waited += after; after == 0 && len(s.sent()) == 0 || waited > 10*time.Second {
					t.Fatalf("the dependent is left alone, and looked at again after %v", after)
				}
				s.clock.Step(after)
			}
		})
	}
}
