package garbagecollector

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// graph is all that is known of the cluster: a node for every object of every type that is watched, and for every object that is only referred
// to; an edge for every owner reference. It is what feeds write into, so there is no other copy. It sends no requests, and its lock is held
// for microseconds, but for a walk over all nodes, over the dependents of one owner, or over the references of one object: 30 ms for 100,000.
//
// It tells who should be looked at. What it shows is a suspicion and never a proof: see evidence.go.
type graph struct {
	clock clock.PassiveClock
	began time.Time
	wake  func(wakes) // called without the lock, from the goroutines of the feeds

	lock   sync.Mutex
	nodes  map[id]*node
	spaces interned[string]
	kinds  interned[writtenKind]
	feeds  []*feed  // by the number in node.feed; nil: free, and the first, which means none
	free   []uint16 // numbers of feeds
	byType map[schema.GroupResource]*feed
	texts  map[id]types.UID    // of UIDs that are no UUID
	names  map[*edge]string    // names as written, where they differ from the owner's
	gone   map[*node]departure // of objects that are still referred to
	denied map[*node]time.Time // when the API server first said of an object that is seen that there is none
	pairs  map[pair]struct{}   // of types whose objects have been owner and dependent
}

// departure is what a feed told of the deletion of an object.
type departure struct {
	at      time.Time
	typ     objectType
	version uint64 // of the event; 0: none that is a number
}

// node is one object. There may be hundreds of thousands, so its size is tested.
type node struct {
	uid        id
	version    uint64 // 0: none that is a number
	name       string // while the object is not seen, as its first reference has it
	space      uint32 // number of its namespace
	feed       uint16 // number of its feed; 0: not seen
	marks      marks
	refs       *edge // the first, in the order in which they are written
	dependents *edge // the first, in no order
}

// edge is one owner reference.
type edge struct {
	dependent, owner *node
	next             *edge         // of the same dependent
	after, before    *edge         // of the same owner
	since            time.Duration // from the beginning of the graph until the dependent was seen to refer to the owner, by this name and kind
	kind             uint32
	blocking         bool
}

// writtenKind is what a reference says of the type of its owner.
type writtenKind struct{ apiVersion, kind string }

// pair is a type of owners and one of dependents, by their feeds.
type pair struct{ owner, dependent uint16 }

// wakes are the objects that a change makes worth a look.
type wakes struct {
	objects []suspect // whose references may not be to living owners
	owners  []id      // that are being deleted, and may be let go
}

// suspect is an object to decide about.
type suspect struct {
	id  id
	nth int // of the dependents that the same change has woken: what lets small owners pass large ones
}

func (w *wakes) object(n *node, nth int) { w.objects = append(w.objects, suspect{n.uid, nth}) }
func (w *wakes) owner(n *node)           { w.owners = append(w.owners, n.uid) }

func newGraph(c clock.PassiveClock, wake func(wakes)) *graph {
	return &graph{
		clock: c, began: c.Now(), wake: wake, nodes: map[id]*node{}, feeds: []*feed{nil}, byType: map[schema.GroupResource]*feed{},
		texts: map[id]types.UID{}, names: map[*edge]string{}, gone: map[*node]departure{}, denied: map[*node]time.Time{}, pairs: map[pair]struct{}{},
	}
}

// change runs a change under the lock and tells afterwards whom it has woken.
func (g *graph) change(do func(*wakes)) {
	var w wakes
	g.lock.Lock()
	do(&w)
	g.lock.Unlock()
	if len(w.objects)+len(w.owners) > 0 {
		g.wake(w)
	}
}

// put notes how an object is. It reports whether the feed had not shown it since its epoch began. The lock is held, as for all that follow.
//
// Only feeds call it: what other reads show is not in the order of their events. An older event does not undo a newer sight of an object all the same,
// where versions can be compared. A list does: it is of what there is, and older only if the API server was restored from a backup.
func (g *graph) put(f *feed, m metav1.Object, listed bool, w *wakes) bool {
	if m.GetUID() == "" {
		return false // what an aggregated API makes up has no identity, and nothing can refer to it
	}
	n := g.nodeOf(m.GetUID(), m.GetName())
	was := n.marks
	first := !was.has(seen)
	if !first && n.feed != f.number {
		// One object under two types, as the projects of OpenShift are namespaces: the API server's own type counts.
		other := g.feeds[n.feed]
		if other.typ.local || !f.typ.local {
			f.shadow(other)
			return false
		}
		other.shadow(f)
		g.unplace(n)
	}
	delete(g.denied, n)
	anew := first || n.feed != f.number
	version := numberOf(m.GetResourceVersion())
	switch d, departed := g.gone[n]; {
	case !f.typ.local || version == 0 || listed:
	case departed && d.typ == f.typ && version <= d.version:
		return false
	case !anew && version < n.version:
		n.marks = was&^epoch | f.epoch
		return was&epoch != f.epoch
	}
	if anew {
		n.feed, n.space = f.number, g.spaces.take(m.GetNamespace())
		f.count++
		delete(g.gone, n)
	}
	g.rename(n, m.GetName())
	n.version = version
	n.marks = was&odd | seen | marksOf(m) | f.epoch
	rewired := !g.sameRefs(n, m.GetOwnerReferences())
	if rewired {
		g.wakeOwners(n, w) // those before
		g.rewire(n, m.GetOwnerReferences())
	}
	if anew {
		g.meet(n, w)
	}
	if anew || rewired || was&facts != n.marks&facts {
		g.wakeOwners(n, w)
		g.consider(n, w)
	}
	if n.marks.waiting() && !(was.has(seen) && was.waiting()) {
		g.wakeDependents(n, w)
	}
	return anew || was&epoch != f.epoch
}

// vanish notes that an object is no more. Its feed told of the deletion, or a list lacked it.
func (g *graph) vanish(n *node, w *wakes) {
	g.wakeOwners(n, w)
	g.wakeDependents(n, w)
	g.rewire(n, nil)
	g.unplace(n)
	n.feed, n.space, n.version = 0, 0, 0
	n.marks &= odd
	delete(g.denied, n)
	g.tidy(n)
}

// deny notes that the API server has said, to somebody who asked for an object by its name, that there is none, or another. As a rule the event is
// on its way. If it has not come when the same is said again, settled later, it never will, and the object vanishes as if a list had lacked
// it. deny returns when that should be asked; 0: it need not.
func (g *graph) deny(key id) (again time.Duration) {
	g.change(func(w *wakes) {
		n := g.nodes[key]
		if n == nil || !n.marks.has(seen) || !g.feeds[n.feed].typ.local { // another server may have answered from what it remembers
			return
		}
		now := g.clock.Now()
		first, before := g.denied[n]
		if !before {
			first = now
			g.denied[n] = now
		}
		if again = first.Add(settled).Sub(now); again <= 0 {
			again = 0
			f := g.feeds[n.feed]
			g.vanish(n, w)
			g.uncover(f)
		}
	})
	return again
}

// depart notes that a feed told of the deletion of an object, which must not be seen. A view of another API that is withdrawn does not hide what the API
// server's own type told.
func (g *graph) depart(n *node, f *feed, version uint64) {
	if g.gone[n].typ.local && !f.typ.local {
		return
	}
	g.gone[n] = departure{g.clock.Now(), f.typ, version}
	g.tidy(n)
}

// goneAs is when the feed of the kind that a reference names told of the deletion of its owner; zero: it did not. Other servers may show one object
// under the UID of another, or give a UID twice.
func (g *graph) goneAs(n *node, kind writtenKind) time.Time {
	d, ok := g.gone[n]
	if group, parsed := groupOf(kind.apiVersion); !ok || !parsed || !d.typ.local || group != d.typ.Group || kind.kind != d.typ.kind {
		return time.Time{}
	}
	return d.at
}

// unplace takes a node out of the counts of its feed and its namespace.
func (g *graph) unplace(n *node) {
	g.spaces.drop(n.space)
	f := g.feeds[n.feed]
	f.count--
	if n.marks&epoch == f.epoch {
		f.shown--
	}
}

// nodeOf returns the node of a UID, a new one if there is none.
func (g *graph) nodeOf(uid types.UID, name string) *node {
	key, exact := idOf(uid)
	n := g.nodes[key]
	if n == nil {
		n = &node{uid: key, name: name}
		g.nodes[key] = n
		if !exact {
			n.marks = odd
			g.texts[key] = uid
		}
	}
	return n
}

// tidy forgets a node that nothing shows and nothing refers to.
func (g *graph) tidy(n *node) {
	if n.marks.has(seen) || n.dependents != nil {
		return
	}
	delete(g.nodes, n.uid)
	delete(g.texts, n.uid)
	delete(g.gone, n)
}

// rename gives a node another name. The references to it go on saying what is written in them.
func (g *graph) rename(n *node, name string) {
	if n.name != name {
		for e := n.dependents; e != nil; e = e.after {
			if written, differs := g.names[e]; !differs {
				g.names[e] = n.name
			} else if written == name {
				delete(g.names, e)
			}
		}
	}
	n.name = name // also if it is equal: this one shares its text with a cache
}

// sameRefs reports whether the references of a node are those that are written, in the same order.
func (g *graph) sameRefs(n *node, refs []metav1.OwnerReference) bool {
	e := n.refs
	for _, ref := range refs {
		if e == nil || !g.says(e, ref) {
			return false
		}
		e = e.next
	}
	return e == nil
}

func (g *graph) says(e *edge, ref metav1.OwnerReference) bool {
	key, _ := idOf(ref.UID)
	return e.owner.uid == key && e.blocking == blocking(ref) && g.nameOf(e) == ref.Name &&
		g.kinds.at(e.kind) == writtenKind{ref.APIVersion, ref.Kind}
}

func (g *graph) nameOf(e *edge) string {
	if name, differs := g.names[e]; differs {
		return name
	}
	return e.owner.name
}

// rewire replaces the references of a node.
func (g *graph) rewire(n *node, refs []metav1.OwnerReference) {
	old, now := n.refs, g.clock.Since(g.began)
	known := g.finder(old)
	n.refs = nil
	next := &n.refs
	for _, ref := range refs {
		owner := g.nodeOf(ref.UID, ref.Name)
		e := &edge{
			dependent: n, owner: owner, after: owner.dependents, since: now,
			kind: g.kinds.take(writtenKind{ref.APIVersion, ref.Kind}), blocking: blocking(ref),
		}
		if before := known(referenceOf(ref)); before != nil {
			e.since = before.since
		}
		if owner.name != ref.Name {
			g.names[e] = ref.Name
		}
		if owner.dependents != nil {
			owner.dependents.before = e
		}
		owner.dependents = e
		g.notePair(owner, n)
		*next = e
		next = &e.next
	}
	for ; old != nil; old = old.next { // afterwards, so that owners in both are not forgotten in between
		g.unlink(old)
	}
}

// meaning is what of a reference says which owner it is to.
type meaning struct {
	owner id
	name  string
	kind  writtenKind
}

// fewRefs are so few that looking through them is quicker than a map of them. There is no limit to what an object may have.
const fewRefs = 8

// finder returns what finds the first of some references that names the same owner as another; nil: none does.
func (g *graph) finder(among *edge) func(reference) *edge {
	count := 0
	for e := among; e != nil && count <= fewRefs; e = e.next {
		count++
	}
	if count <= fewRefs {
		return func(r reference) *edge {
			key, _ := idOf(r.uid)
			for e := among; e != nil; e = e.next {
				if e.owner.uid == key && g.nameOf(e) == r.name && g.kinds.at(e.kind) == (writtenKind{r.apiVersion, r.kind}) {
					return e
				}
			}
			return nil
		}
	}
	first := map[meaning]*edge{}
	for e := among; e != nil; e = e.next {
		key := meaning{e.owner.uid, g.nameOf(e), g.kinds.at(e.kind)}
		if first[key] == nil {
			first[key] = e
		}
	}
	return func(r reference) *edge {
		key, _ := idOf(r.uid)
		return first[meaning{key, r.name, writtenKind{r.apiVersion, r.kind}}]
	}
}

// unlink takes a reference from the list of its owner.
func (g *graph) unlink(e *edge) {
	if e.before != nil {
		e.before.after = e.after
	} else {
		e.owner.dependents = e.after
	}
	if e.after != nil {
		e.after.before = e.before
	}
	g.kinds.drop(e.kind)
	delete(g.names, e)
	g.tidy(e.owner)
}

// notePair remembers that objects of one type own objects of another.
func (g *graph) notePair(owner, dependent *node) {
	if owner.feed != 0 && dependent.feed != 0 {
		g.pairs[pair{owner.feed, dependent.feed}] = struct{}{}
	}
}

// meet is called when a feed shows an object for the first time. Others may refer to it already, and not all of them may mean it.
func (g *graph) meet(n *node, w *wakes) {
	nth := 0
	for e := n.dependents; e != nil; e = e.after {
		g.notePair(n, e.dependent)
		if d := g.doubt(e); d == mismatched || d == elsewhere {
			w.object(e.dependent, nth)
			nth++
		}
	}
}

// consider wakes an object that there may be something to do about.
func (g *graph) consider(n *node, w *wakes) {
	switch {
	case n.marks.finishing():
		w.owner(n)
	case g.suspicious(n):
		w.object(n, 0)
	}
}

// suspicious reports whether an object has a reference that may not be to a living owner.
func (g *graph) suspicious(n *node) bool {
	if !n.marks.has(seen) || n.marks.has(terminating) {
		return false
	}
	for e := n.refs; e != nil; e = e.next {
		if g.doubt(e) != none {
			return true
		}
	}
	return false
}

// wakeOwners wakes the owners of a node that are being deleted: what they wait for may have changed.
func (g *graph) wakeOwners(n *node, w *wakes) {
	for e := n.refs; e != nil; e = e.next {
		if e.owner.marks.finishing() {
			w.owner(e.owner)
		}
	}
}

func (g *graph) wakeDependents(n *node, w *wakes) {
	nth := 0
	for e := n.dependents; e != nil; e = e.after {
		w.object(e.dependent, nth)
		nth++
	}
}

// doubt is what the graph holds against a reference.
type doubt uint8

const (
	none       doubt = iota // the owner is seen where the reference says, and lives
	unseen                  // nothing with this UID is seen
	mismatched              // what is seen with this UID has another name or kind
	elsewhere               // what is seen with this UID is in a namespace that the object cannot refer into
	leaving                 // the owner waits for its dependents to go
)

func (g *graph) doubt(e *edge) doubt {
	switch owner := e.owner; {
	case !owner.marks.has(seen):
		return unseen
	case !g.reachable(e):
		return elsewhere
	case !g.isCalled(owner, g.kinds.at(e.kind), g.nameOf(e)):
		return mismatched
	case owner.marks.waiting():
		return leaving
	}
	return none
}

// isCalled reports whether a reference names what an object, which must be seen, is. The version of the API does not matter: one object is served in
// all versions of its group.
func (g *graph) isCalled(n *node, kind writtenKind, name string) bool {
	typ := g.feeds[n.feed].typ
	group, ok := groupOf(kind.apiVersion)
	return ok && group == typ.Group && kind.kind == typ.kind && name == n.name
}

// reachable reports whether a reference can be meant for an object where its owner, which must be seen, is: one namespace does not refer to another, nor does what is in
// no namespace refer into one.
func (g *graph) reachable(e *edge) bool {
	return g.spaces.at(e.owner.space) == "" || e.owner.space == e.dependent.space
}

// groupOf is the API group that a reference names.
func groupOf(apiVersion string) (group string, ok bool) {
	switch group, version, grouped := strings.Cut(apiVersion, "/"); {
	case !grouped:
		return "", apiVersion != ""
	default:
		return group, group != "" && version != "" && !strings.Contains(version, "/")
	}
}

func (g *graph) uidOf(n *node) types.UID {
	if n.marks.has(odd) {
		return g.texts[n.uid]
	}
	return types.UID(n.uid.String())
}

func (g *graph) reference(e *edge) reference {
	kind := g.kinds.at(e.kind)
	return reference{apiVersion: kind.apiVersion, kind: kind.kind, name: g.nameOf(e), uid: g.uidOf(e.owner), blocking: e.blocking}
}

func (g *graph) snapshot(n *node) object {
	o := object{
		resource: g.feeds[n.feed].typ.GroupResource, namespace: g.spaces.at(n.space), name: n.name,
		uid: g.uidOf(n), version: versionOf(n.version), marks: n.marks & (seen | facts),
	}
	for e := n.refs; e != nil; e = e.next {
		o.refs = append(o.refs, g.reference(e))
	}
	return o
}

// look returns an object, what there is against each of its references, and whether others refer to it. It reports false if it is not seen.
func (g *graph) look(key id) (o object, against []suspicion, owns, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.has(seen) {
		return object{}, nil, false, false
	}
	for e := n.refs; e != nil; e = e.next {
		against = append(against, suspicion{doubt: g.doubt(e), gone: g.goneAs(e.owner, g.kinds.at(e.kind)), since: g.began.Add(e.since)})
	}
	return g.snapshot(n), against, g.ownsOthers(n), true
}

// ownsOthers reports whether other objects refer to one, which must be seen, in a way that can be meant.
func (g *graph) ownsOthers(n *node) bool {
	for e := n.dependents; e != nil; e = e.after {
		if e.dependent != n && g.reachable(e) {
			return true
		}
	}
	return false
}

// against is what there is against the references of an object that was read live, and that the graph may not show as it is now.
func (g *graph) against(o object) []suspicion {
	g.lock.Lock()
	defer g.lock.Unlock()
	var before *edge
	if n := g.nodes[keyed(o)]; n != nil {
		before = n.refs
	}
	read := o.read
	if read.IsZero() {
		read = g.clock.Now()
	}
	against := make([]suspicion, 0, len(o.refs))
	known := g.finder(before)
	for _, r := range o.refs {
		key, _ := idOf(r.uid)
		n := g.nodes[key]
		s := suspicion{doubt: none, since: read}
		if e := known(r); e != nil && g.began.Add(e.since).Before(read) {
			s.since = g.began.Add(e.since)
		}
		switch {
		case n == nil:
			s.doubt = unseen
		case !n.marks.has(seen):
			s.doubt, s.gone = unseen, g.goneAs(n, writtenKind{r.apiVersion, r.kind})
		case g.spaces.at(n.space) != "" && g.spaces.at(n.space) != o.namespace:
			s.doubt = elsewhere
		case !g.isCalled(n, writtenKind{r.apiVersion, r.kind}, r.name):
			s.doubt = mismatched
		case n.marks.waiting():
			s.doubt = leaving
		}
		against = append(against, s)
	}
	return against
}

// suspicion is what the graph knows of the owner that a reference names.
type suspicion struct {
	doubt doubt
	gone  time.Time // when the feed of its kind told that it was deleted; zero: it did not
	since time.Time // when the object was first seen to refer to it; who wrote the reference had seen the owner before
}

// dependents is what an owner waits for, as the graph shows it.
type dependents struct {
	owner    object
	all      int      // references that can be to it
	idle     int      // blocking ones whose objects are not being deleted
	waiting  int      // blocking ones whose objects wait for dependents of their own
	blocking int      // blocking ones
	some     []object // the first of those that block, by UID
}

// dependentsOf counts who refers to an owner and returns up to limit of those that block its deletion. It reports false if it is not seen.
func (g *graph) dependentsOf(key id, limit int) (d dependents, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.has(seen) {
		return dependents{}, false
	}
	d.owner = g.snapshot(n)
	var first []*node
	for e := n.dependents; e != nil; e = e.after {
		if !g.reachable(e) {
			continue
		}
		d.all++
		if !g.blocks(e) {
			continue
		}
		d.blocking++
		switch m := e.dependent.marks; {
		case m.waiting():
			d.waiting++
		case !m.has(terminating):
			d.idle++
		}
		first = insertFirst(first, e.dependent, limit)
	}
	for _, b := range first {
		d.some = append(d.some, g.snapshot(b))
	}
	return d, true
}

// blocks reports whether a reference holds its owner. One to itself does not: the object would never go. Nor does one that cannot be meant,
// or everybody could hold the objects of others.
func (g *graph) blocks(e *edge) bool { return e.blocking && e.owner != e.dependent && g.reachable(e) }

// insertFirst keeps the nodes with the lowest UIDs, in their order, each once.
func insertFirst(first []*node, n *node, limit int) []*node {
	at, known := slices.BinarySearchFunc(first, n, func(a, b *node) int { return bytes.Compare(a.uid[:], b.uid[:]) })
	if known || at >= limit {
		return first
	}
	first = slices.Insert(first, at, n)
	return first[:min(len(first), limit)]
}

// referring returns every object with a reference that can be to an owner, which must be seen, in no order.
func (g *graph) referring(key id) []object {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.has(seen) {
		return nil
	}
	var all []object
	met := map[*node]bool{}
	for e := n.dependents; e != nil; e = e.after {
		if g.reachable(e) && !met[e.dependent] {
			met[e.dependent] = true
			all = append(all, g.snapshot(e.dependent))
		}
	}
	return all
}

// typesOfDependents names the types that objects of a type have been seen to own, sorted.
func (g *graph) typesOfDependents(owner schema.GroupResource) []schema.GroupResource {
	g.lock.Lock()
	defer g.lock.Unlock()
	var found []schema.GroupResource
	for p := range g.pairs {
		if g.feeds[p.owner].typ.GroupResource == owner {
			found = append(found, g.feeds[p.dependent].typ.GroupResource)
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// all returns everything that there may be something to do about: what a term begins with.
func (g *graph) all() wakes {
	g.lock.Lock()
	defer g.lock.Unlock()
	var w wakes
	for _, n := range g.nodes {
		if n.marks.has(seen) {
			g.consider(n, &w)
		}
	}
	return w
}

// collect wakes the dependents of an owner.
func (g *graph) collect(key id) {
	g.change(func(w *wakes) {
		if n := g.nodes[key]; n != nil {
			g.wakeDependents(n, w)
		}
	})
}

// owns reports whether others refer to an object, which need not be seen.
func (g *graph) owns(key id) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	return n != nil && (n.marks.has(seen) && g.ownsOthers(n) || !n.marks.has(seen) && n.dependents != nil)
}

// namespaceOf is the namespace of an object; empty: it has none, or is not seen.
func (g *graph) namespaceOf(key id) string {
	g.lock.Lock()
	defer g.lock.Unlock()
	if n := g.nodes[key]; n != nil && n.marks.has(seen) {
		return g.spaces.at(n.space)
	}
	return ""
}

// sees reports whether an object is seen.
func (g *graph) sees(key id) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	return n != nil && n.marks.has(seen)
}

// size counts objects that are seen, those that are only referred to, and references.
func (g *graph) size() (objects, absent, refs int) {
	g.lock.Lock()
	defer g.lock.Unlock()
	for _, n := range g.nodes {
		if n.marks.has(seen) {
			objects++
		} else {
			absent++
		}
		for e := n.refs; e != nil; e = e.next {
			refs++
		}
	}
	return objects, absent, refs
}
