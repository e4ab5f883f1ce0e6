// Package answer says what an answer of the API server to a request, or its absence, proves. Everybody who has to know whether a write may
// still have happened asks here, so that there is one rule.
package outcome

import (
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Meaning is what an answer proves about a request.
type Outcome string

const (
	Done        Outcome = "done"        // it was done
	Exists      Outcome = "exists"      // not done: the name is taken
	NotFound    Outcome = "missing"     // not done: there is no such object, or no such type
	Conflict    Outcome = "conflict"    // not done: the object is not the version, or not the UID, that was asked for
	Terminating Outcome = "terminating" // not done: the namespace is going away
	Rejected    Outcome = "refused"     // not done for another reason
	Unknown     Outcome = "unknown"     // done, not done, or going to be
)

// Of says what err, the error of a request that was sent, proves; nil is Done.
func FromError(err error) Outcome {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		return Done
	case !errors.As(err, &answer):
		return Unknown
	}
	status := answer.Status()
	switch {
	case status.Code == http.StatusInternalServerError && WebhookFailed(status.Message):
		return Rejected
	case status.Code < http.StatusBadRequest || !Complete(int(status.Code)) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err):
		return Unknown
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Terminating
	case apierrors.IsAlreadyExists(err):
		return Exists
	case apierrors.IsConflict(err):
		return Conflict
	case apierrors.IsNotFound(err):
		return NotFound
	}
	return Rejected
}

// Complete reports whether an answer with this HTTP status proves that the request is over at the server. A 5xx may be the voice of a proxy,
// or of a server that gave up waiting for its storage; a 408 that of a proxy that gave up waiting for the request.
func Complete(status int) bool {
	return status < http.StatusInternalServerError && status != http.StatusRequestTimeout
}

// WebhookFailed reports whether the text of a 500 tells of an admission webhook that did not do its work and must not be passed over. Such a
// request was not done: admission comes before the write (apiserver v0.37, admission/plugin/webhook: an internal error with this text; a
// deadline is another answer). The webhook may be away for long, and nobody should wait for deadlines meanwhile.
func WebhookFailed(text string) bool { return strings.Contains(text, "failed calling webhook ") }

// Unable reports whether err means that the API server gave no usable answer: none at all, an incomplete one (see Complete), or 429. Then other
// clients may get none either. It is false for nil and for answers about the object, such as not found, conflict or forbidden.
func IsUnavailable(err error) bool {
	var answer apierrors.APIStatus
	if err == nil {
		return false
	}
	if !errors.As(err, &answer) {
		return true
	}
	code := int(answer.Status().Code)
	return !Complete(code) || code == http.StatusTooManyRequests
}

// NotFound reports whether err is the Status 404 of an API server that has no object of this name. A load balancer, or a server
// without the path, returns 404 with text. client-go makes a Status with the name of that text, too, with the cause
// UnexpectedServerResponse.
func IsNotFound(err error, name string) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	status := answer.Status()
	return status.Code == http.StatusNotFound && status.Reason == metav1.StatusReasonNotFound && status.Details != nil && status.Details.Name == name
}
