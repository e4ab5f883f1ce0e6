package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

const (
	// listsOfType bounds the lists of one type that are in flight at once, and listsInAll those of all types: a type whose lists hang leaves
	// most of listsInAll to the other types.
	listsOfType = 2
	listsInAll  = 32
	// pageSize is how many objects come at once.
	pageSize = 500
	// pageTimeout is for one page; kube-apiserver v1.37 ends a request after a minute.
	pageTimeout = time.Minute
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
	asked   time.Time // zero: never
	came    time.Time
	err     error
	of      map[id]bool     // owners that it was looked through for
	objects map[id][]object // that refer to one of them, by owner
}

// lists shows who refers to an owner beside what the graph shows: which types may hold dependents, and what lists of them say.
type lists struct {
	client  metadata.Interface
	clock   clock.PassiveClock
	graph   *graph
	types   *knownTypes
	others  func() map[id]bool // owners that a list is looked through for, too
	shelves *inquiries[place, shelf]
}

func newLists(client metadata.Interface, clk clock.PassiveClock, g *graph, known *knownTypes, others func() map[id]bool) *lists {
	l := &lists{client: client, clock: clk, graph: g, types: known, others: others, shelves: newInquiries[place, shelf](clk, listsOfType)}
	l.shelves.all = make(chan struct{}, listsInAll)
	return l
}

// search is for whoever refers to an owner.
type search struct {
	types     []apiType
	shared    func(apiType) bool // lists all namespaces first, for the owners of all namespaces; may be nil
	namespace string             // empty: all
	owner     id
	since     time.Time // no list counts that was asked for before
}

// sweep is what lists have shown of the dependents of one owner.
type sweep struct {
	found  []object               // that refer to it, each once
	blind  []blind                // types that could not be listed, and why
	failed []schema.GroupResource // the same
	again  time.Duration          // when the first of those may be tried again that are not listed now because they do not answer; 0: there is none
}

// everywhere returns the types to list for dependents of an owner, those that the graph shows, and the types that nothing can be known of.
func (l *lists) everywhere(o ending) (types []apiType, known []object, unseen []blind) {
	unserved := map[schema.GroupResource]bool{}
	for _, d := range l.graph.referring(o.key) {
		if l.types.state(d.resource).served() {
			known = append(known, d)
		} else {
			unserved[d.resource] = true
		}
	}
	for _, t := range l.types.states() {
		switch r := t.GroupResource(); {
		case !t.watched || !t.mayDependOn(o.at):
		case t.served():
			types = append(types, t.apiType)
		case unserved[r], t.blind(): // otherwise the graph shows all there was of it, and nothing refers to the owner
			unseen = append(unseen, blind{r.String(), "the API server does not serve it at the moment"})
		}
	}
	for _, group := range l.types.unknownGroups() {
		unseen = append(unseen, blind{"*." + group, "the API server cannot tell what is in the group"})
	}
	return types, known, unseen
}

// dependents lists types and returns what refers to an owner. Its lists are shared with the others. The error is that ctx, or the term, has ended, or that others are in line.
func (l *lists) dependents(ctx context.Context, what search) (sweep, error) {
	type result struct {
		objects []object
		err     error
	}
	results := make([]result, len(what.types))
	var group controller.Group
	group.SetLimit(listsInAll)
	for n, t := range what.types {
		group.Go(func() error {
			results[n].objects, results[n].err = l.list(ctx, t, what)
			return nil
		})
	}
	_ = group.Wait() // errors are part of the results
	var got sweep
	met := map[id]bool{}
	for n, r := range results {
		switch {
		case r.err != nil && (ctx.Err() != nil || errors.Is(r.err, context.Canceled)):
			return sweep{}, r.err
		case r.err != nil:
			why := outcome.EventMessage(r.err)
			var silent *silence
			if errors.As(r.err, &silent) {
				why, got.again = silent.Error(), controller.MinPositive(got.again, silent.again)
			}
			got.blind = append(got.blind, blind{what.types[n].GroupResource().String(), why})
			got.failed = append(got.failed, what.types[n].GroupResource())
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

// list returns the objects of a type that refer to an owner.
func (l *lists) list(ctx context.Context, t apiType, what search) ([]object, error) {
	if what.namespace != "" && what.shared != nil && what.shared(t) {
		objects, err := l.listIn(ctx, t, "", true, what)
		if err == nil || errors.Is(err, context.Canceled) {
			elsewhere := func(o object) bool { return o.namespace != what.namespace }
			return slices.DeleteFunc(slices.Clone(objects), elsewhere), err
		}
	}
	return l.listIn(ctx, t, what.namespace, false, what)
}

// isSmall reports whether the graph shows no more objects of a type than fit into one page. The list of all namespaces then costs as much as the list of one.
func (l *lists) isSmall(t apiType) bool {
	s := l.types.state(t.GroupResource())
	return s.phase == current && s.objects() <= pageSize
}

// listIn lists one version of a type in a namespace, or in all if that is empty.
func (l *lists) listIn(ctx context.Context, t apiType, namespace string, shared bool, what search) ([]object, error) {
	at := place{t.GroupVersionResource, namespace}
	if !t.namespaced {
		at.namespace = ""
	}
	of := api{GroupVersionResource: t.GroupVersionResource, wide: at.namespace == "", shared: shared}
	got, err := l.shelves.ask(ctx, at, of, func(known shelf) bool {
		return !known.asked.IsZero() && !known.asked.Before(what.since) && known.of[what.owner] && l.clock.Since(known.came) < listFresh
	}, func(ctx context.Context) (shelf, error) {
		wanted := l.others()
		wanted[what.owner] = true
		if shared {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, askTimeout)
			defer cancel()
		}
		list := shelf{asked: l.clock.Now(), of: wanted}
		list.objects, list.err = l.read(ctx, at, wanted)
		list.came = l.clock.Now()
		return list, list.err
	})
	if err == nil {
		err = got.err
	}
	if err != nil {
		return nil, fmt.Errorf("list %v: %w", t.GroupResource(), err)
	}
	return got.objects[what.owner], nil
}

// read lists a place, page by page, and keeps what refers to one of the owners. It reads what is stored now, not what some watch cache has.
func (l *lists) read(ctx context.Context, at place, wanted map[id]bool) (map[id][]object, error) {
	found := map[id][]object{}
	var came time.Time // all pages show what was stored when the first one came, or before
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := l.page(ctx, at, options)
		if err != nil {
			return nil, err
		}
		if came.IsZero() {
			came = l.clock.Now()
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

func (l *lists) page(ctx context.Context, at place, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return l.client.Resource(at.GroupVersionResource).Namespace(at.namespace).List(ctx, options)
}

// reset forgets all lists, at the beginning of a term. Nobody may be listing.
func (l *lists) reset() { l.shelves.reset() }

// prune forgets lists that are no longer good for anybody.
func (l *lists) prune() {
	l.shelves.prune(func(known shelf) bool { return l.clock.Since(known.came) >= listFresh })
}
