package replicaset

import (
	"time"

	"minikcm/pkg/controllers/internal/ownership"
)

// throttle is what a ReplicaSet does not try for the time being, or tries more slowly. Without it nothing wrong would be done, but too much.
type throttle struct {
	pace             int // the batch with which a slow start goes on that the time of a sync cut; 0: none was
	reportedFailures int // number of failed pods in the last event

	ownership ownership.State

	statusAt   time.Time     // when the last status was written
	statusTook time.Duration // to write it
}
