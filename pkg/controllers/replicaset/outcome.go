package replicaset

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// outcome is what an answer, or its absence, says about a write.
type outcome int

const (
	done        outcome = iota // committed
	exists                     // refused: the name is taken
	missing                    // refused: there is no such object
	conflict                   // refused: the object is not the version, or not the UID, that we asked for
	terminating                // refused: the namespace is going away
	rejected                   // refused for another reason
	unknown                    // committed, not committed, or going to be
	stopped                    // unknown, because we are being stopped
)

// classify says what became of a write that returned err. Only a complete answer of class 4xx proves that nothing was and
// nothing will be committed; a 5xx may be the voice of a proxy or of a server that gave up waiting for its own storage.
func classify(err error) outcome {
	if err == nil {
		return done
	}
	if errors.Is(err, context.Canceled) {
		return stopped
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return unknown
	}
	code := answer.Status().Code
	switch {
	case code < http.StatusBadRequest || code >= http.StatusInternalServerError || code == http.StatusRequestTimeout:
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

// forUsers is the text of an error for events and conditions. Errors of connections name ports and streams, so each would be another
// text for the same thing; the log has them.
func forUsers(err error) string {
	var transport *url.Error
	if errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded) {
		return "no answer from the API server"
	}
	return err.Error()
}
