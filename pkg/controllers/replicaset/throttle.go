package replicaset

import (
	"time"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/ownerpatch"
)

// throttle is what a ReplicaSet does not try for the time being, or tries more slowly. Without it nothing wrong would be done, but too much.
type throttle struct {
	creates controller.Backoff // after creates that were refused
	deletes controller.Backoff // after deletes that were
	pace    int                // the batch with which a slow start goes on that the time of a sync cut; 0: none was
	failed  successors         // of pods that fail soon after they are created

	ownership ownerpatch.Refusals // of pods
	disowned  bool                // the last adoption was accepted and had no effect

	statusAt      time.Time     // when the last status was written
	statusTook    time.Duration // to write it
	noTerminating int64         // generation of the ReplicaSet at which an API server dropped status.terminatingReplicas; 0: none did
}
