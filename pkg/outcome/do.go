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

// NotSent is the outcome of a write that never left this process. Only [Do] returns it.
const NotSent Outcome = "not_sent"

// MaxCompletionDelay is the time after which the API server does not execute an abandoned write any more.
// kube-apiserver v1.37 ends every write after 34 s (requestTimeoutUpperBound), and etcd v3.7 ends a
// transaction after 7 s.
const MaxCompletionDelay = 41 * time.Second

// Do calls write once, with a context that write must use, and returns the outcome and the error. Do
// observes connections, because the error is not sufficient: client-go repeats a write after a 5xx with a
// Retry-After, and the error of the last attempt does not show the outcome of the first.
func Do(ctx context.Context, write func(context.Context) error) (Outcome, error) {
	var sent atomic.Bool
	err := write(hooks.WithConnections(ctx, func(string) {}, func(httptrace.GotConnInfo) { sent.Store(true) }))
	if err != nil && !sent.Load() && !errors.As(err, new(apierrors.APIStatus)) {
		return NotSent, err
	}
	return FromError(err), err
}
