package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"minikcm/pkg/controllers/internal/discovery"
)

// report is what one pass has found.
type report struct {
	began      time.Time // when the pass began; later by as much time as discovery took
	content    discovery.Answer
	outcomes   []typeResult // pods first
	finalizers []string     // of the namespace itself, which hold it when its content is gone; see heldBy
}

// errs are the errors of the types that failed, sorted by text.
func (r report) errs() []error {
	var errs []error
	for _, o := range r.outcomes {
		if o.err != nil {
			errs = append(errs, o.err)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// stopped returns an error if requests were refused or cut because the term is ending: then nothing is to be said about them.
func (r report) stopped() error {
	for _, err := range append(r.errs(), r.content.Err) {
		if errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// deleted tells whether the pass had objects to delete.
func (r report) deleted() bool {
	return slices.ContainsFunc(r.outcomes, func(o typeResult) bool { return o.deleted })
}

// remaining is how many objects are left.
func (r report) remaining() int64 {
	var n int64
	for _, o := range r.outcomes {
		n += o.remaining
	}
	return n
}

// pending is how many types the pass had no time for.
func (r report) pending() (n int) {
	for _, o := range r.outcomes {
		if o.pending {
			n++
		}
	}
	return n
}

// hidden reports whether a type besides pods was not there to be listed although it had been discovered.
func (r report) hidden() bool {
	return slices.ContainsFunc(r.outcomes[1:], typeResult.hidden)
}

// held are the outcomes of types that have objects left.
func (r report) held() []typeResult {
	return slices.DeleteFunc(slices.Clone(r.outcomes), func(o typeResult) bool { return o.remaining == 0 })
}

// scene is a text that stays the same while nothing moves.
func (r report) scene() string {
	var b strings.Builder
	for _, o := range r.held() {
		fmt.Fprintf(&b, "%s %d %v;", o.resource, o.remaining, o.finalizers)
	}
	return b.String()
}
