package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

const (
	// listsAtOnce is how many lists are under way at most.
	listsAtOnce = 8
	// pageSize is how many objects come at once.
	pageSize = 500
	// pageTimeout is for one page; kube-apiserver v1.37 ends a request after a minute.
	pageTimeout = time.Minute
	// placeFor is how long a list keeps its place: one that takes longer is large, or of an API that does not answer.
	placeFor = 2 * time.Second
	// placePatience is how long a list waits for a place; see slotPatience.
	placePatience = 30 * time.Second
	// failedFor is how long nobody lists a type again whose list has failed: what the one got all others are told.
	failedFor = 10 * time.Second
	// listFresh is how long a list is good for owners whose deletion was seen before it was asked for.
	listFresh = time.Second
)

// place is what one list shows: a type in a namespace, or everywhere if that is empty.
type place struct {
	schema.GroupVersionResource
	namespace string
}

// shelf is the latest list of a place, for all owners that want to know who refers to them.
type shelf struct {
	turn    chan struct{} // holds one while somebody lists
	asked   time.Time     // zero: never
	came    time.Time
	err     error
	of      map[id]bool     // owners that it was looked through for
	objects map[id][]object // that refer to one of them, by owner
}

// sweeper lists types, to find dependents that the graph may not show yet.
type sweeper struct {
	client metadata.Interface
	clock  clock.WithTicker
	lists  *semaphore.Weighted
	wide   *semaphore.Weighted // held by who lists all namespaces

	lock    sync.Mutex
	shelves map[place]*shelf
	failing map[schema.GroupVersionResource]*setback
}

// setback is of a type whose latest list has failed, wherever that was.
type setback struct {
	at      time.Time
	err     error
	probing bool // somebody lists it again
}

func newSweeper(client metadata.Interface, clk clock.WithTicker) *sweeper {
	return &sweeper{client: client, clock: clk, lists: semaphore.NewWeighted(listsAtOnce), wide: semaphore.NewWeighted(1), shelves: map[place]*shelf{},
		failing: map[schema.GroupVersionResource]*setback{}}
}

// sweep is what lists have shown of the dependents of one owner.
type sweep struct {
	found  []object               // that refer to it, each once
	blind  []blind                // types that could not be listed, and why
	failed []schema.GroupResource // the same
}

// dependents lists types, none of which was asked for before since, and returns what refers to an owner. The others in all are owners that the same
// lists may be asked about; their lists are shared. The error is that ctx, or the term, has ended.
func (s *sweeper) dependents(ctx context.Context, types []apiType, namespace string, owner id, since time.Time, all func() map[id]bool) (sweep, error) {
	type result struct {
		objects []object
		err     error
	}
	if namespace == "" { // the next one then shares what is still fresh
		if err := inTime(ctx, func(ctx context.Context) error { return s.wide.Acquire(ctx, 1) }); err != nil {
			return sweep{}, err
		}
		defer s.wide.Release(1)
	}
	results := make([]result, len(types))
	var group errgroup.Group
	group.SetLimit(listsAtOnce)
	for n, t := range types {
		group.Go(func() error {
			return safely(func() error {
				at := place{t.GroupVersionResource, namespace}
				if !t.namespaced {
					at.namespace = ""
				}
				results[n].objects, results[n].err = s.list(ctx, at, owner, since, all)
				return nil
			})
		})
	}
	if err := group.Wait(); err != nil {
		return sweep{}, err
	}
	var got sweep
	met := map[id]bool{}
	for n, r := range results {
		switch {
		case r.err != nil && (ctx.Err() != nil || errors.Is(r.err, context.Canceled)):
			return sweep{}, r.err
		case r.err != nil:
			got.blind = append(got.blind, blind{types[n].GroupResource().String(), r.err.Error()})
			got.failed = append(got.failed, types[n].GroupResource())
		}
		for _, o := range r.objects {
			if key, _ := idOf(o.uid); !met[key] {
				met[key] = true
				got.found = append(got.found, o)
			}
		}
	}
	return got, nil
}

// list returns the objects of a place that refer to an owner, from a list that was asked for at since or later.
func (s *sweeper) list(ctx context.Context, at place, owner id, since time.Time, all func() map[id]bool) ([]object, error) {
	of := s.shelf(at)
	if err := s.failed(at.GroupVersionResource); err != nil { // who tries it may be in there for a minute
		return nil, err
	}
	if err := inTime(ctx, enter(of.turn)); err != nil {
		return nil, err
	}
	defer func() { <-of.turn }()
	if !of.asked.IsZero() && !of.asked.Before(since) && of.of[owner] && s.clock.Since(of.came) < listFresh {
		return of.objects[owner], of.err
	}
	if err := s.probe(at.GroupVersionResource); err != nil {
		return nil, err
	}
	defer s.unprobed(at.GroupVersionResource)
	if err := inTime(ctx, func(ctx context.Context) error { return s.lists.Acquire(ctx, 1) }); err != nil {
		return nil, err
	}
	leave := sync.OnceFunc(func() { s.lists.Release(1) })
	defer leave()
	defer time.AfterFunc(placeFor, leave).Stop()
	wanted := all()
	wanted[owner] = true
	asked := s.clock.Now()
	objects, err := s.read(ctx, at, wanted)
	if err != nil && (ctx.Err() != nil || errors.Is(err, context.Canceled)) {
		return nil, err
	}
	s.listed(at.GroupVersionResource, err)
	of.asked, of.came, of.err, of.of, of.objects = asked, s.clock.Now(), err, wanted, objects
	return objects[owner], err
}

// enter waits for a channel that holds one.
func enter(of chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case of <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inTime has somebody wait for his turn, but not for longer than placePatience.
func inTime(ctx context.Context, wait func(context.Context) error) error {
	patience, cancel := context.WithTimeout(ctx, placePatience)
	defer cancel()
	if err := wait(patience); err != nil {
		return noSlot(ctx)
	}
	return nil
}

// failed is why a type need not be listed now: it was tried a moment ago, or somebody is trying.
func (s *sweeper) failed(r schema.GroupVersionResource) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.setback(r)
}

func (s *sweeper) setback(r schema.GroupVersionResource) error {
	if f := s.failing[r]; f != nil && (f.probing || s.clock.Since(f.at) < failedFor) {
		return f.err
	}
	return nil
}

// probe is failed for somebody who then lists the type, and calls unprobed.
func (s *sweeper) probe(r schema.GroupVersionResource) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if err := s.setback(r); err != nil {
		return err
	}
	if f := s.failing[r]; f != nil {
		f.probing = true
	}
	return nil
}

// unprobed notes that a list is over, or was not made after all.
func (s *sweeper) unprobed(r schema.GroupVersionResource) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if f := s.failing[r]; f != nil {
		f.probing = false
	}
}

// listed notes what came of a list.
func (s *sweeper) listed(r schema.GroupVersionResource, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if err == nil {
		delete(s.failing, r)
		return
	}
	s.failing[r] = &setback{at: s.clock.Now(), err: err}
}

// read lists a place, page by page, and keeps what refers to one of the owners. It reads what is stored now, not what some watch cache has.
func (s *sweeper) read(ctx context.Context, at place, wanted map[id]bool) (map[id][]object, error) {
	found := map[id][]object{}
	var came time.Time // all pages show what was stored when the first one came, or before
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := s.page(ctx, at, options)
		if err != nil {
			return nil, fmt.Errorf("list %v: %w", at.GroupResource(), err)
		}
		if came.IsZero() {
			came = s.clock.Now()
		}
		for i := range page.Items {
			m := &page.Items[i]
			referred := map[id]bool{}
			for _, ref := range m.OwnerReferences {
				if key, _ := idOf(ref.UID); wanted[key] && !referred[key] {
					referred[key] = true
					o := objectOf(at.GroupResource(), m)
					o.read = came
					found[key] = append(found[key], o)
				}
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

func (s *sweeper) page(ctx context.Context, at place, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return s.client.Resource(at.GroupVersionResource).Namespace(at.namespace).List(ctx, options)
}

func (s *sweeper) shelf(at place) *shelf {
	s.lock.Lock()
	defer s.lock.Unlock()
	of := s.shelves[at]
	if of == nil {
		of = &shelf{turn: make(chan struct{}, 1)}
		s.shelves[at] = of
	}
	return of
}

// reset forgets all lists, at the beginning of a term. Nobody may be listing.
func (s *sweeper) reset() {
	s.lock.Lock()
	defer s.lock.Unlock()
	clear(s.shelves)
	clear(s.failing)
}

// prune forgets lists that are no longer good for anybody.
func (s *sweeper) prune() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for at, of := range s.shelves {
		select {
		case of.turn <- struct{}{}:
			if s.clock.Since(of.came) >= listFresh {
				delete(s.shelves, at)
			}
			<-of.turn
		default: // somebody lists
		}
	}
}
