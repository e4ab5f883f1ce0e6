package garbagecollector

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
)

// release takes the source from a type, to be ended without the lock. It is nil if there is none.
func (k *knownType) release() *caches.Feed {
	s := k.source
	k.source = nil
	k.turn++
	return s
}

// end stops sources and has the graph forget the objects of feeds. Neither needs to be there.
func (t *knownTypes) end(sources []*caches.Feed, feeds []*feed) {
	var ended sync.WaitGroup
	for _, s := range sources {
		if s != nil {
			ended.Go(s.Stop)
		}
	}
	ended.Wait()
	for _, f := range feeds {
		if f != nil {
			t.deps.Graph.forget(f)
		}
	}
}

// begin starts the feeds of types. Those that say what is local come first, and the others wait for them for a moment.
func (t *knownTypes) begin(ctx context.Context, types []schema.GroupResource) {
	slices.SortFunc(types, order)
	for _, r := range types {
		if r != apiServices && r != crds {
			t.awaitServices(ctx)
		}
		t.start(ctx, r)
	}
}

// awaitServices waits until it is known which types are local, but not for long.
func (t *knownTypes) awaitServices(ctx context.Context) {
	t.await(ctx, t.known, firstPatience)
	t.servicesKnown()
}

// start starts the feed of a type, if there is to be one.
func (t *knownTypes) start(ctx context.Context, r schema.GroupResource) {
	t.lock.Lock()
	defer t.lock.Unlock()
	k := t.types[r]
	if k == nil || !k.lacksFeed() || ctx.Err() != nil {
		return
	}
	k.local, _ = t.isLocal(k)
	f, err := t.deps.Graph.feed(k.objectType())
	if err == nil {
		var started *caches.Feed
		k.feed = f
		turn := k.turn
		started, err = t.feeds.Start(ctx, k.GroupVersionResource, t.storeOf(r, f), caches.FeedEvents{
			Listed: func() { t.happened(ctx, r, turn, listed, nil) },
			Lost:   func(err error) { t.happened(ctx, r, turn, lost, err) },
			Refused: func(err error) {
				what := quiet
				if err == nil {
					what = heard
				}
				t.happened(ctx, r, turn, what, err)
			},
		})
		if err == nil {
			k.source = started
		}
	}
	if k.err = err; err != nil {
		t.deps.SyncError()
		if !k.logged { // it is tried again all the time
			k.logged = true
			klog.FromContext(ctx).Info("Feed cannot be started", "controller", Name, "resource", k.GroupVersionResource, "reason", err)
		}
	}
}

// lacksFeed reports whether the type should have a feed, and has none.
func (k *knownType) lacksFeed() bool {
	return k.watched && !k.cached && k.phase == listing && k.source == nil
}

// happened notes what a source has told of itself, whose turn it was.
func (t *knownTypes) happened(ctx context.Context, r schema.GroupResource, turn int, what occurrence, err error) {
	t.lock.Lock()
	k := t.types[r]
	if k == nil || k.turn != turn {
		t.lock.Unlock()
		return
	}
	was := k.phase
	k.standing = k.after(what, t.deps.Clock.Now())
	k.whole = k.whole || what == listed
	if k.phase != away && (err != nil || what == listed || what == heard) { // a watch that ends well does not mend what was wrong
		k.err = err
	}
	is := k.phase
	t.lock.Unlock()
	if err != nil {
		t.deps.SyncError()
	}
	klog.FromContext(ctx).V(4).Info("Feed", "controller", Name, "resource", r.String(), "was", was, "is", is, "reason", err)
	if was != current && is == current {
		t.changed()
	}
}

// heeding listens to feeds, and forgets those of types that have been away for long.
func (t *knownTypes) heeding(ctx context.Context) {
	ticker := t.deps.Clock.NewTicker(heedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			t.heed(ctx, t.deps.Clock.Now())
		}
	}
}

// heed looks once at every type.
func (t *knownTypes) heed(ctx context.Context, now time.Time) {
	t.shifting.Lock()
	defer t.shifting.Unlock()
	var stop, open, slow []*caches.Feed
	var old []*feed
	var begin []schema.GroupResource
	regained := false
	t.lock.Lock()
	for r, k := range t.types {
		switch k.phase {
		case away:
			if k.source != nil && now.Sub(k.since) >= lingering {
				stop = append(stop, k.release())
			}
			if now.Sub(k.since) < keptFor {
				break
			}
			if k.feed != nil && !k.lacking && !k.emptied && t.deps.Graph.holdsOrphans(k.feed) {
				k.since = now // as long again: those owners may not go before
				break
			}
			stop, old = append(stop, k.release()), append(old, k.feed)
			delete(t.types, r)
		case listing:
			if k.source != nil && !k.source.Begun() {
				k.since = now // the wait for a place is no sign of a slow API
			}
			slow = append(slow, k.listing()...)
			if k.lacksFeed() {
				begin = append(begin, r)
			}
			k.tellSilence(ctx, now)
		case current, silent:
			was, what := k.phase, t.listen(k, now)
			k.standing = k.after(what, now)
			if what == quiet {
				k.reopened = now
				open = append(open, k.source)
			}
			k.logged = k.logged && k.phase == silent
			k.tellSilence(ctx, now)
			regained = regained || was == silent && k.phase == current
		}
	}
	t.lock.Unlock()
	for _, s := range open {
		if s != nil { // those who watch over caches reopen the watches of theirs
			s.Reopen(now.Add(-quietFor))
		}
	}
	for _, s := range slow {
		s.GiveUp(quietFor)
	}
	t.end(stop, old)
	for _, r := range begin {
		t.start(ctx, r)
	}
	if regained {
		t.changed()
	}
}

// tellSilence logs, once, that the objects of a type are not seen as they are.
func (k *knownType) tellSilence(ctx context.Context, now time.Time) {
	var reason any = "nothing has been heard for a while"
	switch {
	case k.logged:
		return
	case k.phase == listing && k.err != nil && k.listingFor(now) >= syncPatience:
		reason = k.err
	case k.phase == silent && k.err != nil:
		reason = k.err
	case k.phase == listing && k.listingFor(now) >= quietFor, k.phase == silent:
	default:
		return
	}
	k.logged = true
	klog.FromContext(ctx).Info("Objects of a type are not seen", "controller", Name, "resource", k.GroupResource().String(), "reason", reason)
}

// listen says what has been heard of a type that was listed.
func (t *knownTypes) listen(k *knownType, now time.Time) occurrence {
	last := t.feeds.Heard(k.GroupVersionResource)
	switch {
	case now.Sub(timing.Later(last, timing.Later(k.since, k.reopened))) >= quietFor:
		return quiet
	case last.After(k.since):
		return heard
	}
	return ""
}

// stopAll ends all feeds.
func (t *knownTypes) stopAll() {
	t.lock.Lock()
	var all []*caches.Feed
	for _, k := range t.types {
		if k.source != nil {
			all = append(all, k.release())
		}
	}
	t.lock.Unlock()
	t.end(all, nil)
}

// observe has the graph told of the objects of a type that has a cache.
func (t *knownTypes) observe(of caches.Cached) caches.Handler[metav1.Object] {
	r := of.Resource.GroupResource()
	if t.ignored[r] {
		return caches.Handler[metav1.Object]{}
	}
	now := t.deps.Clock.Now()
	k := &knownType{apiType: apiType{GroupVersionResource: of.Resource, kind: of.Kind, watched: true, local: true}, cached: true, standing: standing{listing, now}}
	f, err := t.deps.Graph.feed(k.objectType())
	if err != nil {
		k.err = err
		return caches.Handler[metav1.Object]{}
	}
	k.feed = f
	t.lock.Lock()
	t.types[r] = k
	t.filling = append(t.filling, of.Synced)
	t.lock.Unlock()
	t.deps.Caches.Alongside(func(ctx context.Context) {
		select {
		case <-of.Synced:
			t.happened(ctx, r, 0, listed, nil)
		case <-ctx.Done():
		}
	})
	store := t.storeOf(r, f)
	return caches.Handler[metav1.Object]{
		Add: func(obj metav1.Object) { _ = store.Add(obj) },
		Update: func(old, new metav1.Object) {
			f.Changed(old, new)
			if s, ok := store.(tapped); ok {
				s.tell(new, false)
			}
		},
		Delete: func(obj metav1.Object) { _ = store.Delete(obj) },
		Missed: func(obj metav1.Object) { _ = store.Delete(cache.DeletedFinalStateUnknown{Obj: obj}) },
	}
}
