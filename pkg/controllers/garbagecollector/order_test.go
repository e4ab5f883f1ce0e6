package garbagecollector

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFirstSightOfReferences(t *testing.T) {
	one, two := ref("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "p", uid(2))
	renamed, blocks := one, one
	renamed.Name = "q"
	blocks.BlockOwnerDeletion = new(true)
	for _, tt := range []struct {
		name string
		refs [][]metav1.OwnerReference // one change per second
		want []time.Duration
	}{
		{"a new object", [][]metav1.OwnerReference{{one}}, []time.Duration{0}},
		{"its status is written", [][]metav1.OwnerReference{{one}, {one}}, []time.Duration{0}},
		{"another owner adopts it", [][]metav1.OwnerReference{{one}, {two, one}}, []time.Duration{time.Second, time.Second}},
		{"the reference blocks now", [][]metav1.OwnerReference{{one}, {blocks}}, []time.Duration{time.Second}},
		{"it is put right", [][]metav1.OwnerReference{{renamed}, {one}}, []time.Duration{time.Second}},
		{"it was away", [][]metav1.OwnerReference{{one}, nil, {one}}, []time.Duration{2 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			began := w.clock.Now()
			for n, refs := range tt.refs {
				w.clock.SetTime(began.Add(time.Duration(n) * time.Second))
				w.do(func() error {
					return w.feed(configMaps).Add(newThing("a", "d", uid(9)).at(string(rune('1' + n))).owned(refs...))
				})
			}
			w.clock.SetTime(began.Add(time.Minute))
			_, against, _ := w.graph.observe(keyOf(uid(9)))
			var got []time.Duration
			for _, s := range against {
				got = append(got, s.refSeen.Sub(began))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("references are seen since %v, want %v", got, tt.want)
			}
		})
	}
	t.Run("read live, before its event", func(t *testing.T) {
		w := newWorld(t)
		began := w.clock.Now()
		w.do(func() error { return w.feed(configMaps).Add(newThing("a", "d", uid(9)).owned(one)) })
		live := objectOf(configMaps.GroupResource, newThing("a", "d", uid(9)).owned(one, two))
		live.read = began.Add(time.Second)
		w.clock.SetTime(began.Add(time.Minute))
		if got := w.graph.observeOwners(live); got[0].refSeen != live.read || got[1].refSeen != live.read {
			t.Errorf("references are seen since %v and %v, want %v, when they were read", got[0].refSeen, got[1].refSeen, live.read)
		}
		live.refs = live.refs[:1]
		if got := w.graph.observeOwners(live); got[0].refSeen != began {
			t.Errorf("the reference is seen since %v, want %v, as in the graph", got[0].refSeen, began)
		}
	})
}

// An aggregated API server may show an object with the UID of another object, and a reference may name a wrong kind.
func TestDeletionEventsCountForTheirKindOnly(t *testing.T) {
	view := newThing("a", "o", uid(1))
	for _, tt := range []struct {
		name string
		ref  metav1.OwnerReference
		tell func(w *world)
		told bool
	}{
		{"its own", ref("v1", "ConfigMap", "o", uid(1)), func(w *world) {
			_ = w.feed(configMaps).Add(view)
			_ = w.feed(configMaps).Delete(view)
		}, true},
		{"its own, under another name", ref("v1", "ConfigMap", "p", uid(1)), func(w *world) {
			_ = w.feed(configMaps).Add(view)
			_ = w.feed(configMaps).Delete(view)
		}, true},
		{"another type's", ref("apps/v1", "ReplicaSet", "o", uid(1)), func(w *world) {
			_ = w.feed(configMaps).Add(view)
			_ = w.feed(configMaps).Delete(view)
		}, false},
		{"a kind that was never served", ref("does.not/exist", "Wrong", "o", uid(1)), func(w *world) {
			_ = w.feed(configMaps).Add(view)
			_ = w.feed(configMaps).Delete(view)
		}, false},
		{"a server that may show it again", ref("example.com/v1", "Widget", "o", uid(1)), func(w *world) {
			_ = w.feed(widgets).Add(view)
			_ = w.feed(widgets).Delete(view)
		}, false},
		{"a view that is withdrawn afterwards", ref("v1", "ConfigMap", "o", uid(1)), func(w *world) {
			_ = w.feed(configMaps).Add(view)
			_ = w.feed(configMaps).Delete(view)
			_ = w.feed(widgets).Delete(view)
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			_ = w.feed(nodesType).Add(newThing("", "d", uid(2)).owned(tt.ref))
			tt.tell(w)
			if _, against, _ := w.graph.observe(keyOf(uid(2))); against[0].deletedAt.IsZero() == tt.told {
				t.Errorf("against its owner there is %+v; that it was deleted is known: want %v", against, tt.told)
			}
		})
	}
}

func TestNumericVersions(t *testing.T) {
	for version, want := range map[string]uint64{"": 0, "0": 0, "7": 7, "18446744073709551615": 1<<64 - 1, "18446744073709551616": 0, "007": 0, "+7": 0, "-7": 0, "7a": 0} {
		if got := numberOf(version); got != want {
			t.Errorf("version %q is number %d, want %d", version, got, want)
		}
	}
}

func TestWaitingMarks(t *testing.T) {
	for m, want := range map[marks]bool{
		terminating | foreground: true, foreground: false, terminating | orphaning: false,
		terminating | foreground | otherFinalizer: true, terminating | foreground | orphaning: false, // the finalizer orphan wins
	} {
		if got := m.waiting(); got != want {
			t.Errorf("marks %b: it waits: %v, want %v", m, got, want)
		}
	}
}

func TestReferenceWithoutUIDIsUnknown(t *testing.T) {
	live := liveRead{}.next(found, newThing("a", "o", uid(1)), began, began)
	if got, want := classifyOwner(evidence{ownerObservation: ownerObservation{status: refVirtual}, live: live}, began), (classification{cause: "unparsable_version"}); got != want {
		t.Errorf("judgment is %+v, want %+v", got, want)
	}
}

// An object whose deletion event is lost for good does not block its owner forever.
func TestObjectNotFoundIsRemoved(t *testing.T) {
	for _, tt := range []struct {
		name string
		typ  objectType
		seen bool
	}{
		{"type of the API server itself", configMaps, false},
		{"aggregated type, which may be read from a cache", widgets, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.do(func() error {
				return w.feed(replicaSets).Add(newThing("a", "o", uid(1)).finalizedBy("foregroundDeletion").deleted())
			})
			w.do(func() error {
				return w.feed(tt.typ).Add(newThing("a", "d", uid(2)).at("5").owned(blockingRef("apps/v1", "ReplicaSet", "o", uid(1))))
			})
			_, owners := w.do(func() error { w.graph.removeNotFound(keyOf(uid(2))); return nil })
			if _, _, got := w.graph.observe(keyOf(uid(2))); got != tt.seen || got == slices.Contains(owners, uid(1)) {
				t.Errorf("seen: %v, queued owners %v", got, owners)
			}
			if len(w.graph.notFoundAt) > 0 {
				t.Error("an object without dependents is remembered")
			}
		})
	}
}

// One response must not count twice: once because the graph lacks the owner since then, and once as the response.
func TestRemovedOwnersNeedLaterEvidence(t *testing.T) {
	w := newWorld(t)
	w.do(func() error { return w.feed(configMaps).Add(newThing("a", "o", uid(1))) })
	w.do(func() error {
		return w.feed(replicaSets).Add(newThing("a", "d", uid(2)).owned(ref("v1", "ConfigMap", "o", uid(1))))
	})
	w.clock.SetTime(began.Add(time.Hour))
	w.do(func() error { w.graph.removeNotFound(keyOf(uid(1))); return nil })
	_, against, _ := w.graph.observe(keyOf(uid(2)))
	if got := against[0]; got.status != refVirtual || !got.refSeen.Equal(began.Add(time.Hour)) {
		t.Errorf("the graph has %+v, want evidence from after the denial", got)
	}
}
