package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"minikcm/pkg/caches"
)

const (
	// barrierPatience is how long a sync waits for the caches to show our own writes before it looks for itself.
	barrierPatience = 30 * time.Second
	// barrierRecheck bounds the wait for an event that may never come: a pod that was created and removed between two lists.
	barrierRecheck = time.Second
)

// ledger is what we did for one ReplicaSet in this term and the caches may not show yet. Only the sync of its key uses it.
type ledger struct {
	uid types.UID

	podVersion   string    // highest resourceVersion of a pod we wrote; empty: the cache has reached it
	setVersion   string    // the same of the ReplicaSet
	unseenSince  time.Time // when the first of what the caches may not show was written; zero: they show it all
	waitingSince time.Time // when the caches were first found behind; zero when they are not

	verified bool      // the first write of this term has been decided on a live read
	seen     *snapshot // the last live read, until the cache has reached it

	intents []intent
	gone    map[types.UID]struct{} // deleted for certain
	doomed  map[types.UID]doom     // deleted perhaps
	refused map[types.UID]refusal  // adoptions and releases that the API server refuses
	undone  bool                   // the last adoption was accepted and had no effect

	pace          int // the batch with which a slow start goes on that the time of a sync cut; 0: none was
	creates       createBackoff
	replaced      map[types.UID]struct{} // failed pods that have successors, or need none
	failedTold    int                    // how many failed pods there were when the user was last told that they hold up creates
	generation    int64                  // of the spec that pods were last created for; 0: none yet in this term
	specSince     time.Time              // when it last changed; zero: not since the term began
	noTerminating bool                   // the API server drops status.terminatingReplicas
}

// intent is a name chosen for a pod that has to be created.
type intent struct {
	name    string
	unknown bool      // an attempt was not answered, so the pod may exist or come to exist
	until   time.Time // by then it exists or never will; zero: the attempt is under way
}

// doom is a delete that was sent and not answered.
type doom struct {
	version string    // of the pod, the precondition: once the pod has another one the delete cannot be carried out
	until   time.Time // by then it has been carried out or never will be
}

// refusal keeps a pod from being adopted or released until it has changed or the time has come.
type refusal struct {
	version string
	until   time.Time
}

// snapshot is a consistent list. A cached pod no newer than the list and not in it is a ghost: the cache has yet to see its deletion.
type snapshot struct {
	version string
	uids    map[types.UID]struct{}
}

func newLedger(uid types.UID) *ledger {
	return &ledger{uid: uid, gone: map[types.UID]struct{}{}, doomed: map[types.UID]doom{}, refused: map[types.UID]refusal{}}
}

// versions are the resourceVersions that the contents of the caches have reached.
type versions struct{ pods, sets string }

// barrier is the answer to whether a sync may work on the caches.
type barrier int

const (
	open    barrier = iota // they show all we wrote
	wait                   // they will
	overdue                // they should by now, or nobody can tell: look at the API server
)

// check compares the caches with what we wrote. at must have been read before any object.
func (l *ledger) check(at versions, now time.Time) barrier {
	behind, err := l.behind(at)
	if err == nil && len(behind) == 0 {
		l.podVersion, l.setVersion, l.unseenSince, l.waitingSince = "", "", time.Time{}, time.Time{}
		return open
	}
	if l.unseenSince.IsZero() {
		l.unseenSince = now
	}
	if l.waitingSince.IsZero() {
		l.waitingSince = now
	}
	if err != nil || now.Sub(l.unseenSince) >= barrierPatience {
		return overdue // until somebody has looked
	}
	return wait
}

// unseen reports whether something was written that the caches were not yet found to show.
func (l *ledger) unseen(now time.Time) bool {
	if l.podVersion == "" && l.setVersion == "" {
		return false
	}
	if l.unseenSince.IsZero() {
		l.unseenSince = now
	}
	return true
}

// behind names the resources whose cache lacks something we wrote. An error means that versions cannot be compared.
func (l *ledger) behind(at versions) (resources []string, err error) {
	for _, c := range []struct{ resource, wrote, reached string }{
		{"pods", l.podVersion, at.pods}, {"replicasets", l.setVersion, at.sets},
	} {
		if c.wrote == "" {
			continue
		}
		order, err := resourceversion.CompareResourceVersion(c.wrote, c.reached)
		if err != nil {
			return nil, err
		}
		if order > 0 {
			resources = append(resources, c.resource)
		}
	}
	return resources, nil
}

func (l *ledger) wrotePod(version string) { l.podVersion = later(l.podVersion, version) }
func (l *ledger) wroteSet(version string) { l.setVersion = later(l.setVersion, version) }

// later returns the higher of two versions. One that cannot be compared is kept: the barrier then asks the API server.
func later(a, b string) string {
	if a == "" {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a, b); err != nil || order >= 0 {
		return a
	}
	return b
}

// lookedLive notes a consistent read: the ReplicaSet, and the pods it selects, as of a version. The caches have to come that far, with the
// pods of others too, which they may still show as ours. A version lower than what we wrote means that the cluster was restored from a
// backup; what we remember is then of no use.
func (l *ledger) lookedLive(rs *appsv1.ReplicaSet, pods []*caches.Pod, version string) {
	l.verified, l.unseenSince, l.waitingSince = true, time.Time{}, time.Time{}
	if later(version, l.podVersion) != version {
		l.podVersion = ""
	}
	if later(rs.ResourceVersion, l.setVersion) != rs.ResourceVersion {
		l.setVersion = ""
	}
	l.wroteSet(rs.ResourceVersion)
	l.seen = &snapshot{version: version, uids: make(map[types.UID]struct{}, len(pods))}
	for _, pod := range pods {
		l.seen.uids[pod.UID] = struct{}{}
		l.wrotePod(pod.ResourceVersion)
	}
}

// withoutGhosts returns the cached pods without those that the last live read has shown to be gone. selected tells whether a pod
// would have been in it.
func (l *ledger) withoutGhosts(pods []*caches.Pod, at versions, selected func(*caches.Pod) bool) []*caches.Pod {
	if l.seen == nil {
		return pods
	}
	if order, err := resourceversion.CompareResourceVersion(at.pods, l.seen.version); err != nil || order >= 0 {
		l.seen = nil
		return pods
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod *caches.Pod) bool {
		if _, listed := l.seen.uids[pod.UID]; listed || !selected(pod) {
			return false
		}
		order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, l.seen.version)
		return err == nil && order <= 0
	})
}

// lostAnswers counts writes whose answer was lost and whose fate has become known. undone are deletes that were not and will not be
// carried out.
type lostAnswers struct{ created, deleted, undone int }

// settle compares what is pending with the pods that are there. byName finds a pod of the namespace, whoever owns it. live is when the
// consistent read began that the pods are from; zero if they are from the cache.
func (l *ledger) settle(pods []*caches.Pod, byName func(name string) (*caches.Pod, bool), live time.Time) lostAnswers {
	var found lostAnswers
	l.intents = slices.DeleteFunc(l.intents, func(i intent) bool {
		pod, ok := byName(i.name)
		if ok && i.unknown && pod.ControllerUID() == l.uid {
			found.created++
		}
		return ok // made, or the name is another's
	})
	if len(l.gone)+len(l.doomed)+len(l.refused) == 0 {
		return found
	}
	there := make(map[types.UID]*caches.Pod, len(pods))
	for _, pod := range pods {
		there[pod.UID] = pod
	}
	for uid := range l.gone {
		if pod := there[uid]; pod == nil || pod.DeletionTimestamp != nil {
			delete(l.gone, uid)
		}
	}
	for uid, d := range l.doomed {
		switch pod := there[uid]; {
		case pod == nil || pod.DeletionTimestamp != nil:
			delete(l.doomed, uid)
			found.deleted++
		case newer(pod.ResourceVersion, d.version) || !live.Before(d.until):
			delete(l.doomed, uid)
			found.undone++
		}
	}
	for uid, r := range l.refused {
		if pod := there[uid]; pod == nil || pod.ResourceVersion != r.version {
			delete(l.refused, uid)
		}
	}
	return found
}

// newer reports whether version a is known to be higher than b.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// decided returns the first moment at which a live read can tell the fate of one of the doomed pods.
func (l *ledger) decided() (first time.Time) {
	for _, d := range l.doomed {
		if first.IsZero() || d.until.Before(first) {
			first = d.until
		}
	}
	return first
}

// observeSpec notes when the spec changes. acted is the generation that the status tells of.
func (l *ledger) observeSpec(generation, acted int64, now time.Time) {
	if l.generation != generation && (l.generation != 0 || acted != generation) {
		l.specSince = now
	}
	l.generation = generation
}

// succeeded notes that all the failed pods have successors, or need none.
func (l *ledger) succeeded(failed []*caches.Pod) {
	l.replaced = nil
	for _, pod := range failed {
		if l.replaced == nil {
			l.replaced = make(map[types.UID]struct{}, len(failed))
		}
		l.replaced[pod.UID] = struct{}{}
	}
}

// names returns n names to create pods with: first those of earlier attempts, then new ones from draw that nobody has. Each is marked as
// not answered until created says otherwise.
func (l *ledger) names(n int, draw func() string, taken func(name string) bool) []intent {
	for len(l.intents) < n {
		name := draw()
		if !taken(name) && !slices.ContainsFunc(l.intents, func(i intent) bool { return i.name == name }) {
			l.intents = append(l.intents, intent{name: name})
		}
	}
	chosen := slices.Clone(l.intents[:n])
	for i := range l.intents[:n] {
		l.intents[i].unknown, l.intents[i].until = true, time.Time{}
	}
	return chosen
}

// keep keeps a name for the next attempt.
func (l *ledger) keep(kept intent) {
	for i := range l.intents {
		if l.intents[i].name == kept.name {
			l.intents[i] = kept
		}
	}
}

// forget drops a name: its pod was made, or is another's.
func (l *ledger) forget(name string) {
	l.intents = slices.DeleteFunc(l.intents, func(i intent) bool { return i.name == name })
}

// unanswered returns by when the fate is decided of each create that was not answered.
func (l *ledger) unanswered() []time.Time {
	var until []time.Time
	for _, i := range l.intents {
		if i.unknown {
			until = append(until, i.until)
		}
	}
	return until
}
