package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/pkg/answer"
	"minikcm/pkg/controller"
)

const (
	// listsAtOnce is how many lists are under way at most for one owner, listsOfType about one type that are waited for alike, and listsInAll for all owners. A
	// type whose lists hang keeps the others from few of those, then.
	listsAtOnce = 8
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

// sweeper lists types, to find dependents that the graph may not show yet.
type sweeper struct {
	client  metadata.Interface
	clock   clock.PassiveClock
	shelves *inquiries[place, shelf]
	// Each holds one while somebody lists all namespaces: one for owners with limited patience, the other for those that wait for as long as it takes.
	wideLimited, wideUnhurried chan struct{}
}

func newSweeper(client metadata.Interface, clk clock.PassiveClock) *sweeper {
	s := &sweeper{
		client: client, clock: clk, shelves: newInquiries[place, shelf](clk, listsOfType),
		wideLimited: make(chan struct{}, 1), wideUnhurried: make(chan struct{}, 1),
	}
	s.shelves.all = make(chan struct{}, listsInAll)
	return s
}

// search is for whoever refers to an owner.
type search struct {
	types     []apiType
	patience  func(apiType) time.Duration // how long each may take; nil: as long as it takes
	namespace string                      // empty: all
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

// dependents lists types and returns what refers to an owner. The others in all are owners that the same
// lists may be asked about; their lists are shared. The error is that ctx, or the term, has ended, or that others are in line.
func (s *sweeper) dependents(ctx context.Context, what search, all func() map[id]bool) (sweep, error) {
	type result struct {
		objects []object
		err     error
	}
	if what.namespace == "" && len(what.types) > 0 { // the next one then shares what is still fresh
		wide := s.wideLimited
		if what.patience == nil {
			wide = s.wideUnhurried
		}
		if err := enter(ctx, wide, nil); err != nil {
			return sweep{}, err
		}
		defer func() { <-wide }()
	}
	results := make([]result, len(what.types))
	var group controller.Group
	group.SetLimit(listsAtOnce)
	for n, t := range what.types {
		group.Go(func() error {
			results[n].objects, results[n].err = s.list(ctx, t, what, all)
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
			why := answer.ForUsers(r.err)
			var silent *silence
			if errors.As(r.err, &silent) {
				why, got.again = silent.Error(), controller.Soonest(got.again, silent.again)
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

// list returns the objects of a type that refer to an owner. If what is stored cannot be read in the preferred version, as that takes a conversion whose webhook
// is away, it may be in another.
func (s *sweeper) list(ctx context.Context, t apiType, what search, all func() map[id]bool) ([]object, error) {
	how := unhurried
	if what.patience != nil {
		patience := what.patience(t)
		how = limited
		if patience <= hangs {
			how = brief
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	objects, err := s.listIn(ctx, t, how, what, all)
	if !unreadable(err) {
		return objects, err
	}
	for _, other := range t.others() {
		if objects, failed := s.listIn(ctx, other, how, what, all); failed == nil {
			return objects, nil
		}
	}
	return objects, err
}

// unreadable reports whether an error says that the API server has failed, which it does if it cannot convert something, or has not answered in that version.
func unreadable(err error) bool {
	var status apierrors.APIStatus
	var silent *silence
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError || errors.As(err, &silent)
}

// listIn is list in one version.
func (s *sweeper) listIn(ctx context.Context, t apiType, how haste, what search, all func() map[id]bool) ([]object, error) {
	at := place{t.GroupVersionResource, what.namespace}
	if !t.namespaced {
		at.namespace = ""
	}
	of := api{GroupVersionResource: t.GroupVersionResource, wide: at.namespace == "", haste: how}
	got, err := s.shelves.ask(ctx, at, of, func(known shelf) bool {
		return !known.asked.IsZero() && !known.asked.Before(what.since) && known.of[what.owner] && s.clock.Since(known.came) < listFresh
	}, func(ctx context.Context) (shelf, error) {
		wanted := all()
		wanted[what.owner] = true
		list := shelf{asked: s.clock.Now(), of: wanted}
		list.objects, list.err = s.read(ctx, at, wanted)
		list.came = s.clock.Now()
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
func (s *sweeper) read(ctx context.Context, at place, wanted map[id]bool) (map[id][]object, error) {
	found := map[id][]object{}
	var came time.Time // all pages show what was stored when the first one came, or before
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := s.page(ctx, at, options)
		if err != nil {
			return nil, err
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

// reset forgets all lists, at the beginning of a term. Nobody may be listing.
func (s *sweeper) reset() { s.shelves.reset() }

// prune forgets lists that are no longer good for anybody.
func (s *sweeper) prune() {
	s.shelves.prune(func(known shelf) bool { return s.clock.Since(known.came) >= listFresh })
}
