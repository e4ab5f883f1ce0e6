package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outcome is what an answer, or its absence, says about a write. Only done and unknown leave anything in the cluster.
type outcome int

const (
	done        outcome = iota // committed
	exists                     // refused: the name is taken
	missing                    // refused: there is no such object
	conflict                   // refused: the object is not the version, or not the UID, that we asked for
	terminating                // refused: the namespace is going away
	rejected                   // refused for another reason
	unsent                     // it never left this process
	unknown                    // committed, not committed, or going to be
)

// landsWithin is how long a write that was given up here may still be carried out: kube-apiserver v1.37 ends every write after 34 s
// (requestTimeoutUpperBound), and etcd v3.7 a transaction that it has been handed after 7 s.
const landsWithin = 41 * time.Second

// send does one write and says what became of it. Whether it left is observed, not read from the error: client-go repeats a write that was
// answered 5xx with a Retry-After, and the error of the last attempt says nothing about the first.
func send(ctx context.Context, write func(context.Context) error) (outcome, error) {
	var left atomic.Bool
	err := write(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { left.Store(true) },
	}))
	if err != nil && !left.Load() && !errors.As(err, new(apierrors.APIStatus)) {
		return unsent, err
	}
	return classify(err), err
}

// classify says what became of a write that was sent and returned err. A complete answer of class 4xx proves that nothing was and
// nothing will be committed, and so does a webhook that could not be asked; any other 5xx may be the voice of a proxy or of a server that
// gave up waiting for its own storage. For deletes see removePod.
func classify(err error) outcome {
	if err == nil {
		return done
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return unknown
	}
	status := answer.Status()
	switch {
	case webhookFailed(status):
		return rejected
	case status.Code < http.StatusBadRequest || status.Code >= http.StatusInternalServerError || status.Code == http.StatusRequestTimeout:
		return unknown
	case apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err):
		return unknown
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return terminating
	case apierrors.IsAlreadyExists(err):
		return exists
	case apierrors.IsConflict(err):
		return conflict
	case apierrors.IsNotFound(err):
		return missing
	}
	return rejected
}

// webhookFailed reports whether a status tells of an admission webhook that did not do its work and must not be passed over. Admission
// comes before the write (apiserver v0.37, admission/plugin/webhook: an internal error with this text; a deadline is another answer).
func webhookFailed(status metav1.Status) bool {
	return status.Code == http.StatusInternalServerError && status.Reason == metav1.StatusReasonInternalError &&
		strings.HasPrefix(status.Message, "Internal error occurred: failed calling webhook ")
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
