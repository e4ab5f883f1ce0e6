package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"minikcm/pkg/answer"
)

// outcome is what became of a write: what its answer proves, or unsent. Only Done and Unknown leave anything in the cluster.
type outcome = answer.Meaning

const unsent outcome = "unsent" // it never left this process

// landsWithin is how long a write that was given up here may still be carried out: kube-apiserver v1.37 ends every write after 34 s
// (requestTimeoutUpperBound), and etcd v3.7 a transaction that it has been handed after 7 s.
const landsWithin = 41 * time.Second

// send does one write and says what became of it. Whether it left is observed, not read from the error: client-go repeats a write that was
// answered 5xx with a Retry-After, and the error of the last attempt says nothing about the first. For deletes see removePod.
func send(ctx context.Context, write func(context.Context) error) (outcome, error) {
	var left atomic.Bool
	err := write(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { left.Store(true) },
	}))
	if err != nil && !left.Load() && !errors.As(err, new(apierrors.APIStatus)) {
		return unsent, err
	}
	return answer.Of(err), err
}

// stopping reports whether a request ended because the term or the process ends.
func stopping(err error) bool { return errors.Is(err, context.Canceled) }

// forUsers is the text of an error for events and conditions. Errors of connections name ports and streams, so each would be another
// text for the same thing; the log has them.
func forUsers(err error) string {
	var late interface{ WriteTimeout() time.Duration } // what a write has, which says more than that it was not enough
	var transport *url.Error
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("no answer from the API server in the %v that a write has, admission may be slow", late.WriteTimeout())
	case errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded):
		return "no answer from the API server"
	}
	return err.Error()
}
