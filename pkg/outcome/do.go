package outcome

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"minikcm/internal/hooks"
)

// Unsent is what [Send] adds to the meanings: not done, because it never left this process.
const NotSent Outcome = "unsent"

// LandsWithin is how long a write that was given up here may still be carried out: kube-apiserver v1.37 ends every write after 34 s
// (requestTimeoutUpperBound), and etcd v3.7 a transaction that it has been handed after 7 s.
const MaxCompletionDelay = 41 * time.Second

// Send does one write and says what its error proves. Whether the write left is observed, not read from the error: client-go repeats a
// write that was answered 5xx with a Retry-After, and the error of the last attempt says nothing about the first. write is called once,
// and must use the context that it is given.
func Do(ctx context.Context, write func(context.Context) error) (Outcome, error) {
	var left atomic.Bool
	err := write(hooks.WithConnections(ctx, func(string) {}, func(httptrace.GotConnInfo) { left.Store(true) }))
	if err != nil && !left.Load() && !errors.As(err, new(apierrors.APIStatus)) {
		return NotSent, err
	}
	return FromError(err), err
}
