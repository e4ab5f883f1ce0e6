package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// life is what was seen of one object.
type life struct {
	what    string // type, namespace and name
	made    time.Time
	waiting time.Time // it was seen to be deleted in the foreground
	changed time.Time // and no longer so, because somebody had deleted it in another way
	gone    time.Time // zero: it was there in the end
	refs    map[types.UID]*reference
}

// reference is one to an owner, for as long as it stood.
type reference struct {
	from, to time.Time // to: zero as long as it stands
	blocking bool
}

// over reports whether something had ended at a moment, which is zero if it had not at all.
func over(end, at time.Time) bool { return !end.IsZero() && !end.After(at) }

// record is of all objects, by UID.
type record struct {
	lock  sync.Mutex
	lives map[types.UID]*life
}

func newRecord() *record { return &record{lives: map[types.UID]*life{}} }

// watch records a type until ctx ends, from what there is of it.
func (r *record) watch(ctx context.Context, client metadata.Interface, typ schema.GroupVersionResource) error {
	informer := metadatainformer.NewFilteredMetadataInformer(client, typ, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.see(typ, o) },
		UpdateFunc: func(_, o any) { r.see(typ, o) },
		DeleteFunc: r.lose,
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", typ.Resource, err)
	}
	go informer.RunWithContext(ctx)
	return nil
}

func (r *record) see(typ schema.GroupVersionResource, o any) {
	m, ok := o.(metav1.Object)
	if !ok {
		return
	}
	now := time.Now()
	r.lock.Lock()
	defer r.lock.Unlock()
	l := r.lives[m.GetUID()]
	if l == nil {
		l = &life{what: name(typ.Resource, m.GetNamespace(), m.GetName()), made: now, refs: map[types.UID]*reference{}}
		r.lives[m.GetUID()] = l
	}
	switch waits := m.GetDeletionTimestamp() != nil && slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents); {
	case waits && (l.waiting.IsZero() || !l.changed.IsZero()):
		l.waiting, l.changed = now, time.Time{}
	case !waits && !l.waiting.IsZero() && l.changed.IsZero() && slices.Contains(m.GetFinalizers(), metav1.FinalizerOrphanDependents):
		l.changed = now
	}
	there := map[types.UID]bool{}
	for _, ref := range m.GetOwnerReferences() {
		there[ref.UID] = true
		if l.refs[ref.UID] == nil || !l.refs[ref.UID].to.IsZero() {
			l.refs[ref.UID] = &reference{from: now}
		}
		l.refs[ref.UID].blocking = ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	}
	for uid, ref := range l.refs {
		if !there[uid] && ref.to.IsZero() {
			ref.to = now
		}
	}
}

func name(resource, namespace, name string) string { return resource + " " + namespace + "/" + name }

func (r *record) lose(o any) {
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	m, ok := o.(metav1.Object)
	if !ok {
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if l := r.lives[m.GetUID()]; l != nil {
		l.gone = time.Now()
	}
}
