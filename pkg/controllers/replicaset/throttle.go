package replicaset

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// throttle is what a ReplicaSet does not try for the time being, or tries more slowly. Without it nothing wrong would be done, but too much.
type throttle struct {
	creates controller.Backoff // after creates that were refused
	deletes controller.Backoff // after deletes that were
	pace    int                // the batch with which a slow start goes on that the time of a sync cut; 0: none was
	failed  successors         // of pods that fail soon after they are created

	ownership map[types.UID]refusal // pods that the API server does not let us adopt or release
	disowned  bool                  // the last adoption was accepted and had no effect

	statusAt      time.Time     // when the last status was written
	statusTook    time.Duration // to write it
	noTerminating int64         // generation of the ReplicaSet at which an API server dropped status.terminatingReplicas; 0: none did
}

func newThrottle() *throttle { return &throttle{ownership: map[types.UID]refusal{}} }

// refusal keeps a pod from being adopted or released until it has changed or the time has come.
type refusal struct {
	version string
	until   time.Time
}

// forget drops the refusals of pods that are gone or have changed.
func (t *throttle) forget(pods []*caches.Pod) {
	if len(t.ownership) == 0 {
		return
	}
	there := byUID(pods)
	for uid, r := range t.ownership {
		if pod := there[uid]; pod == nil || pod.ResourceVersion != r.version {
			delete(t.ownership, uid)
		}
	}
}

// admitted leaves out the pods whose adoption or release was refused a moment ago, and says when to try the first of those; 0: there are none.
func (t *throttle) admitted(pods []*caches.Pod, now time.Time) (rest []*caches.Pod, again time.Duration) {
	if len(t.ownership) == 0 {
		return pods, 0
	}
	for _, pod := range pods {
		if r, ok := t.ownership[pod.UID]; ok && now.Before(r.until) {
			again = controller.Soonest(again, r.until.Sub(now))
			continue
		}
		rest = append(rest, pod)
	}
	return rest, again
}
