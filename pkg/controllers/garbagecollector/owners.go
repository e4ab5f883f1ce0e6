package garbagecollector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
)

const (
	// readTimeout is the time within which the API server has to return one object.
	readTimeout = 10 * time.Second
	// ownerReads bounds the concurrent reads of owners for one object; twice as many are allowed per type.
	ownerReads = 8
	// keepReads is the time for which a live read is kept: longer than the longest back-off, or consecutive
	// failures would not add up. A read of an owner without a watch is kept for keepPolls.
	keepReads = 2 * maxBackoff
	keepPolls = pollInterval + 2*pollJitter
)

// problem is the reason for which the owner of a reference cannot be read. Such an owner is unknown, so that its
// dependents stay. The exceptions are an impossible name, and an unserved kind after a deletion event: there is no such
// owner.
type problem string

const (
	fine              problem = ""
	unparsableVersion problem = "unparsable_version"
	outOfScope        problem = "scope"            // namespaced owner of a cluster-scoped dependent
	undiscovered      problem = "undiscovered"     // discovery of the group has failed
	unknownKind       problem = "unknown_kind"     // the group lacks the kind
	unservedVersion   problem = "unserved_version" // the version may have other objects, because the type is not local
	ambiguousKind     problem = "ambiguous_kind"   // several types have the kind
	impossibleName    problem = "impossible_name"  // a local type cannot have a name with a slash
	unusableName      problem = "unusable_name"    // an aggregated API server may allow such a name
)

// location is the place of an object, or of a list if the name is empty. The namespace is empty for cluster-scoped
// objects and for lists of all namespaces.
type location struct {
	schema.GroupVersionResource
	namespace, name string
}

// resolve returns the location of the owner of a reference. The namespace is that of the dependent.
func (c kindIndex) resolve(r reference, namespace string) (location, problem) {
	gv, err := schema.ParseGroupVersion(r.apiVersion)
	if err != nil || gv.Version == "" {
		return location{}, unparsableVersion
	}
	found := c.kinds[gv.WithKind(r.kind).GroupKind()]
	switch {
	case c.sent.IsZero(), len(found) == 0 && c.failing[gv.Group]:
		return location{}, undiscovered
	case len(found) == 0:
		return location{}, unknownKind
	case len(found) > 1:
		return location{}, ambiguousKind
	}
	t := found[0]
	at := location{GroupVersionResource: t.GroupVersionResource, name: r.name}
	if !t.local { // versions may have different objects
		if !slices.Contains(t.versions, gv.Version) {
			return location{}, unservedVersion
		}
		at.Version = gv.Version
	}
	if t.namespaced {
		at.namespace = namespace
	}
	switch named := len(content.IsPathSegmentName(r.name)) == 0; {
	case t.namespaced && namespace == "":
		return location{}, outOfScope
	case !named && t.local:
		return location{}, impossibleName
	case !named:
		return location{}, unusableName
	}
	return at, fine
}

// ownerReader finds the states of the owners of an object. It reads owners live where the graph is not enough, and
// shares the reads between all dependents.
type ownerReader struct {
	client metadata.Interface
	clock  clock.PassiveClock
	graph  *graph
	types  *knownTypes
	limit  *readLimiter
	failed *rate.Limiter
	shared singleflight.Group

	lock  sync.Mutex
	reads map[location]liveRead
}

func newOwnerReader(client metadata.Interface, clk clock.Clock, g *graph, known *knownTypes) *ownerReader {
	r := &ownerReader{client: client, clock: clk, graph: g, types: known, limit: newReadLimiter(clk, 2*ownerReads, nil)}
	r.reset()
	return r
}

// reset forgets the reads of an earlier term and their failures. Types whose reads hang stay in back-off.
func (r *ownerReader) reset() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.reads, r.failed = map[location]liveRead{}, rate.NewLimiter(failuresPerSecond, failuresBurst)
}

// ownerView is the state of the owners of one object at one moment.
type ownerView struct {
	syncBegun     time.Time
	viewedAt      time.Time
	hasDependents bool
	owners        []ownerEvidence
	states        []ownerState
	reads         []int         // positions of the references whose owners have to be read
	after         time.Duration // time until the next recheck; 0: no recheck
	cause         string        // why the first unknown owner is unknown
}

type ownerEvidence struct {
	evidence
	classification
	at location
}

// read reads owners until no further read can change the view. Its error is errBusy or the end of the term.
func (r *ownerReader) read(ctx context.Context, o object) (v ownerView, err error) {
	syncBegun := r.clock.Now()
	for range tries {
		if v = r.view(o, syncBegun); len(v.reads) == 0 {
			return v, nil
		}
		var group controller.Group
		group.SetLimit(ownerReads)
		for _, n := range v.reads {
			group.Go(func() error { return r.readOwner(ctx, v.owners[n].at, v.owners[n].live) })
		}
		if err := group.Wait(); err != nil {
			return ownerView{}, err
		}
	}
	v.after = minBackoff
	return v, nil
}

// view classifies the owners of an object by the reads so far.
func (r *ownerReader) view(o object, syncBegun time.Time) ownerView {
	observed, hasDependents := r.graph.observeOwners(o)
	now, known, n := r.clock.Now(), r.types.kindIndex(), len(o.refs)
	v := ownerView{syncBegun: syncBegun, viewedAt: now, hasDependents: hasDependents, owners: make([]ownerEvidence, n), states: make([]ownerState, n)}
	for n, ref := range o.refs {
		e := &v.owners[n]
		e.evidence = evidence{ownerObservation: observed[n], uid: ref.uid, syncBegun: syncBegun, discovered: known.sent}
		if e.status != refValid {
			e.at, e.problem = known.resolve(ref, o.namespace)
		}
		if e.status != refValid && e.problem == fine {
			e.live = r.latest(e.at)
			switch s := r.types.state(e.at.GroupResource()); {
			case s.phase == listing:
				e.listingFor = max(now.Sub(s.since), 1)
			case s.phase == current && s.local && s.err == nil: // a failing watch shows no deletion
				e.watchedFor = now.Sub(s.since)
			}
		}
		e.classification = classifyOwner(e.evidence, now)
		if e.classification.read {
			if pause := r.limit.backoffOf(e.at.GroupVersionResource, 0); pause > 0 {
				e.classification = classification{after: pause, cause: string(unavailable)}
			} else {
				v.reads = append(v.reads, n)
			}
		}
		if e.state == solid && e.after > maxBackoff { // a poll
			e.after += rand.N(pollJitter)
		}
		v.states[n] = e.state
		v.after, v.cause = timing.MinPositive(v.after, e.after), cmp.Or(v.cause, e.cause)
	}
	return v
}

func (r *ownerReader) latest(at location) liveRead {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.reads[at]
}

// readOwner reads an owner, unless another sync has since the previous read. Failures are part of the record. The
// error is errBusy or the end of the term.
func (r *ownerReader) readOwner(ctx context.Context, at location, previous liveRead) error {
	if r.latest(at).sent.After(previous.sent) {
		return nil
	}
	// All syncs of a term end together, so a sync may wait for the read of another sync.
	_, err, _ := r.shared.Do(fmt.Sprint(at.GroupVersionResource, "/", at.namespace, "/", at.name), func() (any, error) {
		return nil, r.limit.do(ctx, at.GroupVersionResource, func(ctx context.Context) error {
			sent := r.clock.Now()
			owner, err := r.get(ctx, at)
			if ctx.Err() != nil || errors.Is(err, context.Canceled) {
				return cmp.Or(err, ctx.Err())
			}
			r.lock.Lock()
			defer r.lock.Unlock()
			read := r.reads[at].next(classifyRead(owner, err, at.name), owner, sent, r.clock.Now())
			if read.failures > 0 { // the back-off begins later
				read.received = read.received.Add(r.failed.ReserveN(read.received, 1).DelayFrom(read.received))
			}
			r.reads[at] = read
			return err
		})
	})
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("get %v %q: %w", at.GroupResource(), at.name, err)
	}
	return nil
}

func (r *ownerReader) get(ctx context.Context, at location) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return r.client.Resource(at.GroupVersionResource).Namespace(at.namespace).Get(ctx, at.name, metav1.GetOptions{})
}

func (r *ownerReader) prune() {
	r.limit.backoff.GC()
	r.lock.Lock()
	defer r.lock.Unlock()
	for at, live := range r.reads {
		if age := r.clock.Since(live.received); age > keepReads && (live.result != found || age > keepPolls) {
			delete(r.reads, at)
		}
	}
}
