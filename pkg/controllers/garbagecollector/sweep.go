package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

const (
	// All sweeps share listsInAll lists in flight, at most listsOfType of one type.
	listsOfType = 2
	listsInAll  = 32
	pageSize    = 500
	// pageTimeout is the time within which kube-apiserver v1.37 ends a list request.
	pageTimeout = time.Minute
	// listValidFor is the time for which a list serves other owners.
	listValidFor = time.Second
)

// sweeper lists the dependents of owners that leave orphans. Lists are shared by all such owners.
type sweeper struct {
	client        metadata.Interface
	clock         clock.PassiveClock
	graph         *graph
	types         *knownTypes
	owners        func() []id // those that leave orphans
	limit         *readLimiter
	allNamespaces *readLimiter // of lists of all namespaces

	lock  sync.Mutex
	lists map[location]dependentList
}

type dependentList struct {
	sent, received time.Time
	owners         map[id]bool
	dependents     map[id][]object // by owner
}

func newSweeper(client metadata.Interface, clk clock.Clock, g *graph, known *knownTypes, owners func() []id) *sweeper {
	all := make(chan struct{}, listsInAll)
	return &sweeper{
		client: client, clock: clk, graph: g, types: known, owners: owners, lists: map[location]dependentList{},
		limit: newReadLimiter(clk, listsOfType, all), allNamespaces: newReadLimiter(clk, 1, all),
	}
}

// unlistedType is a type whose objects are not known, and the reason.
type unlistedType struct{ resource, reason string }

// typesToSweep returns the types that may have dependents of an owner, the dependents in the graph, and the types that
// cannot be listed.
func (s *sweeper) typesToSweep(key id, owner apiType) (types []apiType, dependents []object, unlisted []unlistedType) {
	dependents = s.graph.dependentObjects(key)
	for _, t := range s.types.allStates() {
		switch {
		case t.store == nil || !t.mayDependOn(owner):
		case t.isServed():
			types = append(types, t.apiType)
		case t.phase == away || slices.ContainsFunc(dependents, func(d object) bool { return d.resource == t.GroupResource() }):
			unlisted = append(unlisted, unlistedType{t.GroupResource().String(), "the API server does not serve the type"})
		}
	}
	for _, group := range s.types.unknownGroups() {
		unlisted = append(unlisted, unlistedType{"*." + group, "not all types of the group are discovered"})
	}
	dependents = slices.DeleteFunc(dependents, func(d object) bool { return !s.types.state(d.resource).isServed() })
	return types, dependents, unlisted
}

// sweep lists types and returns the dependents of an owner, by lists that were sent since a moment, and the types
// that could not be listed. The error is errBusy or the end of the term.
func (s *sweeper) sweep(ctx context.Context, types []apiType, owner object, since time.Time) (dependents []object, unlisted []unlistedType, err error) {
	found, failed := make([][]object, len(types)), make([]error, len(types))
	var group controller.Group
	group.SetLimit(listsInAll)
	for n, t := range types {
		group.Go(func() error {
			found[n], failed[n] = s.list(ctx, t, owner, since)
			return nil
		})
	}
	_ = group.Wait() // panics if a call panicked
	for n, t := range types {
		switch {
		case failed[n] != nil && (ctx.Err() != nil || errors.Is(failed[n], context.Canceled)):
			return nil, nil, fmt.Errorf("list %v: %w", t.GroupResource(), failed[n])
		case failed[n] != nil:
			unlisted = append(unlisted, unlistedType{t.GroupResource().String(), outcome.EventMessage(failed[n])})
		}
		dependents = append(dependents, found[n]...)
	}
	return dependents, unlisted, nil
}

// list returns the objects of a type that refer to an owner. All namespaces of a small type are listed at once, but not
// while such lists hang.
func (s *sweeper) list(ctx context.Context, t apiType, owner object, since time.Time) ([]object, error) {
	key, at := owner.key(), location{GroupVersionResource: t.GroupVersionResource, namespace: owner.namespace}
	if !t.namespaced {
		at.namespace = ""
	}
	state := s.types.state(t.GroupResource())
	onePage := state.phase == current && state.store.objectCount() <= pageSize
	if at.namespace != "" && onePage && s.allNamespaces.backoffOf(t.GroupVersionResource, 0) == 0 {
		list, err := s.listAt(ctx, s.allNamespaces, location{GroupVersionResource: t.GroupVersionResource}, key, since)
		if err == nil || s.allNamespaces.backoffOf(at.GroupVersionResource, 0) == 0 {
			elsewhere := func(o object) bool { return o.namespace != owner.namespace }
			return slices.DeleteFunc(slices.Clone(list.dependents[key]), elsewhere), err
		}
	}
	list, err := s.listAt(ctx, s.limit, at, key, since)
	return list.dependents[key], err
}

// listAt returns a list that was sent since a moment and collected the dependents of an owner. Another owner may have
// sent it.
func (s *sweeper) listAt(ctx context.Context, limit *readLimiter, at location, owner id, since time.Time) (list dependentList, err error) {
	shared := func() bool {
		s.lock.Lock()
		defer s.lock.Unlock()
		list = s.lists[at]
		return !list.sent.Before(since) && list.owners[owner] && s.clock.Since(list.received) < listValidFor
	}
	if shared() {
		return list, nil
	}
	err = limit.do(ctx, at.GroupVersionResource, func(ctx context.Context) error {
		if shared() {
			return nil
		}
		timeout := pageTimeout
		if limit == s.allNamespaces {
			timeout = readTimeout
		}
		list, err = s.read(ctx, at, owner, timeout)
		return err
	})
	if err != nil { // list may be an older one
		return dependentList{}, err
	}
	return list, nil
}

// read lists a place from storage, not from a watch cache, and keeps the dependents of all owners that leave orphans.
func (s *sweeper) read(ctx context.Context, at location, owner id, timeout time.Duration) (dependentList, error) {
	list := dependentList{sent: s.clock.Now(), owners: map[id]bool{owner: true}, dependents: map[id][]object{}}
	for _, key := range s.owners() {
		list.owners[key] = true
	}
	options := metav1.ListOptions{Limit: pageSize}
	for first := true; first || options.Continue != ""; first = false {
		limited, cancel := context.WithTimeout(ctx, timeout)
		page, err := s.client.Resource(at.GroupVersionResource).Namespace(at.namespace).List(limited, options)
		cancel()
		if err != nil {
			return dependentList{}, err
		}
		for i := range page.Items {
			for _, ref := range page.Items[i].OwnerReferences {
				if key, _ := idOf(ref.UID); list.owners[key] {
					list.dependents[key] = append(list.dependents[key], objectOf(at.GroupResource(), &page.Items[i]))
				}
			}
		}
		options.Continue = page.Continue
	}
	list.received = s.clock.Now()
	s.lock.Lock()
	defer s.lock.Unlock()
	s.lists[at] = list
	return list, nil
}

func (s *sweeper) prune() {
	s.limit.backoff.GC()
	s.allNamespaces.backoff.GC()
	s.lock.Lock()
	defer s.lock.Unlock()
	maps.DeleteFunc(s.lists, func(_ location, list dependentList) bool { return s.clock.Since(list.received) >= listValidFor })
}
