package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
)

const (
	// askTimeout is how long the API server may take to show one object.
	askTimeout = 10 * time.Second
	// repliesKept is how long a reply counts: longer than the longest pause between two questions, or failures in a row would not add up.
	repliesKept = 2 * maxPause
	// questionsAtOnce bounds how many owners are asked for at once for one object, and, twice that, for all objects about one type: an object may have
	// thousands, and an API may not answer.
	questionsAtOnce = 8
)

// owners says what is known of the owners that objects refer to. It asks the API server where that is not enough, and remembers the replies for all that refer to
// them. What was said in an earlier term does not count: see [owners.reset].
type owners struct {
	client  metadata.Interface
	clock   clock.PassiveClock
	graph   *graph
	types   *knownTypes
	replies *inquiries[target, reply]
}

func newOwners(client metadata.Interface, clk clock.PassiveClock, g *graph, known *knownTypes) *owners {
	return &owners{client: client, clock: clk, graph: g, types: known, replies: newInquiries[target, reply](clk, 2*questionsAtOnce)}
}

// view is what is known, at one moment, of all owners of an object.
type view struct {
	weighed
	look time.Time  // began
	of   []judgment // by reference
}

// judgment is what is known of the owner that one reference names, and what follows.
type judgment struct {
	testimony
	ruling
	at target
}

// judged asks for owners until nothing is left that an answer of the API server could tell. The error is that the term has ended, or errBusy.
func (o *owners) judged(ctx context.Context, dependent object, against []suspicion) (view, error) {
	look := o.clock.Now()
	for range tries {
		v := o.view(dependent, against, look)
		if len(v.ask) == 0 {
			return v, nil
		}
		if err := o.askFor(ctx, v); err != nil {
			return view{}, err
		}
	}
	v := o.view(dependent, against, look)
	if len(v.ask) > 0 { // answers are too old as soon as they come; those that are still to be asked for count as unknown
		v.after, v.held = minPause, "slow"
	}
	return v, nil
}

// askFor reads the owners that a view needs, a few at once.
func (o *owners) askFor(ctx context.Context, v view) error {
	var all controller.Group
	all.SetLimit(questionsAtOnce)
	for _, n := range v.ask {
		if controller.Draining(ctx) {
			all.Go(func() error { return controller.ErrDraining })
			break
		}
		all.Go(func() error { return o.ask(ctx, v.of[n].at, v.of[n].live) })
	}
	return all.Wait()
}

// view judges every owner of an object by what is known now, in a look that began at a moment.
func (o *owners) view(dependent object, against []suspicion, look time.Time) view {
	v := view{look: look, of: make([]judgment, len(dependent.refs))}
	now, known := o.clock.Now(), o.types.catalogue()
	rulings := make([]ruling, len(dependent.refs))
	for n, r := range dependent.refs {
		j := &v.of[n]
		j.testimony = testimony{suspicion: against[n], uid: r.uid, look: look}
		if j.doubt != none {
			if j.at, j.problem = known.resolve(r, dependent.namespace); j.problem == fine {
				s := o.types.state(j.at.GroupResource())
				j.live, j.syncing, j.heard = o.known(j.at), s.listingFor(now), j.at.heardFor(s.standing, now)
			} else {
				j.removed = !j.gone.IsZero() && known.lacks(r, j.gone)
			}
		}
		if j.ruling = judge(j.testimony, now); j.ask {
			if pause := o.pause(j.at); pause > 0 {
				j.ruling = ruling{after: pause, held: string(unable)}
			}
		}
		rulings[n] = j.ruling
	}
	v.weighed = weigh(rulings)
	return v
}

// holds reports whether what was decided would be decided now: while a request waits to be sent answers grow old, and events come.
func (o *owners) holds(dependent object, was view) bool {
	now := o.view(dependent, o.graph.against(dependent), was.look)
	return len(now.ask) == 0 && slices.Equal(now.owners, was.owners)
}

// obscure is the position of the first owner that nobody can tell anything about, and why; -1: there is none.
func (v view) obscure() (n int, why string) {
	for n, j := range v.of {
		switch {
		case j.problem != fine:
			return n, j.problem.text()
		case j.live.failures > 0: // also while it is time to ask again
			return n, j.live.says.text()
		case j.held == string(unable): // its API was not even asked, because it does not answer
			return n, unable.text()
		}
	}
	return -1, ""
}

// unreachable is the position of the first reference that cannot be meant, because its owner is, or would be, where the object cannot refer to; -1: there is none.
func (v view) unreachable() int {
	return slices.IndexFunc(v.of, func(j judgment) bool { return j.doubt == elsewhere || j.problem == outOfReach })
}

// known is the latest reply about an owner, the zero reply if there is none.
func (o *owners) known(at target) reply { return o.replies.latest(at) }

// pause is for how long owners of a type are not to be asked for, because its API does not answer; 0: they may be.
func (o *owners) pause(at target) time.Duration {
	return o.replies.pause(api{GroupVersionResource: at.GroupVersionResource})
}

// ask asks for an owner, unless somebody else has since the reply before, with which the caller could not decide, or its API does not answer. It reports only that ctx, or the term,
// has ended, or that too many others are in line: whatever else there is to an answer is in the reply.
func (o *owners) ask(ctx context.Context, at target, before reply) error {
	_, err := o.replies.ask(ctx, at, api{GroupVersionResource: at.GroupVersionResource},
		func(known reply) bool { return known.asked.After(before.asked) },
		func(ctx context.Context) (reply, error) { return o.put(ctx, at) })
	var silent *silence
	if err == nil || errors.As(err, &silent) {
		return nil
	}
	return fmt.Errorf("get %v %q: %w", at.GroupResource(), at.name, err)
}

// put asks for an owner, and reports apart from the reply if there was no answer.
func (o *owners) put(ctx context.Context, at target) (reply, error) {
	asked := o.clock.Now()
	owner, err := o.get(ctx, at)
	var m metav1.Object
	if err == nil {
		m = owner
	}
	says, now := sayingOf(m, err, at.name), o.clock.Now()
	next := o.known(at).then(says, m, asked, now)
	if says == found {
		next.poll = now.Add(pollEvery + rand.N(pollJitter))
	}
	if says != unable {
		err = nil
	}
	return next, err
}

func (o *owners) get(ctx context.Context, at target) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return o.client.Resource(at.GroupVersionResource).Namespace(at.namespace).Get(ctx, at.name, metav1.GetOptions{})
}

// reset forgets everything, at the beginning of a term. Nobody may be asking.
func (o *owners) reset() { o.replies.reset() }

// prune forgets what is too old to matter.
func (o *owners) prune() {
	now := o.clock.Now()
	o.replies.prune(func(r reply) bool { return now.Sub(timing.Later(r.asked, r.poll)) > repliesKept })
}
