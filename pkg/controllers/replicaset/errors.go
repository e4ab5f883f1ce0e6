package replicaset

import (
	"context"
	"errors"

	"minikcm/pkg/controllers/internal/writelimit"
)

var (
	// errCut ends a sync whose time is up. It is not a failure: the key is queued again at once.
	errCut = writelimit.ErrCut
	// errTerminating ends a slow start. It is not a failure: nothing can be created in the namespace any more, and nothing need be.
	errTerminating = errors.New("namespace is terminating")
	errNoLabels    = errors.New("unable to create pods, no labels") // upstream's words
	errTaken       = errors.New("every pod name that was drawn is taken")
)

// stopping reports whether a request ended because the term or the process ends.
func stopping(err error) bool { return errors.Is(err, context.Canceled) }

// decisive returns which of two errors of a sync says how it goes on: the first, unless the next says that nothing can be written any more.
func decisive(first, next error) error {
	if first == nil || stopping(next) || errors.Is(next, errTerminating) {
		return next
	}
	return first
}
