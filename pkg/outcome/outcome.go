// Package outcome classifies the responses of the API server to writes: whether a write was executed, was
// not executed, or may be executed later.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is the effect of a write, as far as its response shows.
type Outcome string

const (
	Done        Outcome = "done"        // executed
	Exists      Outcome = "exists"      // not executed: the name is taken
	NotFound    Outcome = "not_found"   // not executed: there is no such object
	Conflict    Outcome = "conflict"    // not executed: the object has another version or UID
	Terminating Outcome = "terminating" // not executed: the namespace is terminating
	Rejected    Outcome = "rejected"    // not executed for another reason
	Unknown     Outcome = "unknown"     // executed, not executed, or executed later
)

// FromError returns the outcome of a write that was sent and returned err.
func FromError(err error) Outcome {
	var response apierrors.APIStatus
	switch {
	case err == nil:
		return Done
	case !errors.As(err, &response):
		return Unknown
	}
	status := response.Status()
	switch {
	case status.Code == http.StatusInternalServerError && WebhookFailed(status.Message):
		return Rejected
	case status.Code < http.StatusBadRequest || !Complete(int(status.Code)):
		return Unknown
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Terminating
	case apierrors.IsAlreadyExists(err):
		return Exists
	case apierrors.IsConflict(err):
		return Conflict
	// A 404 with text is no response about the object, see IsNotFound.
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return NotFound
	}
	return Rejected
}

// Complete reports whether a response with this HTTP status shows that the API server has finished the
// request. A 5xx may come from a proxy, or from a server whose storage did not respond in time. A 408 may
// come from a proxy.
func Complete(status int) bool {
	return status < http.StatusInternalServerError && status != http.StatusRequestTimeout
}

// WebhookFailed reports whether the text of a 500 shows a failed admission webhook with failurePolicy Fail.
// Such a write was not executed, because admission comes first (apiserver v0.37, admission/plugin/webhook). A
// webhook may be away for long, so callers must not wait for MaxCompletionDelay.
func WebhookFailed(text string) bool { return strings.Contains(text, "failed calling webhook ") }

// IsUnavailable reports whether err shows that the API server sent no response, an incomplete response (see
// Complete), or 429. Then other clients may have no service either. Responses about the object, such as not
// found, conflict or forbidden, do not count.
func IsUnavailable(err error) bool {
	var response apierrors.APIStatus
	if err == nil {
		return false
	}
	if !errors.As(err, &response) {
		return true
	}
	code := int(response.Status().Code)
	return !Complete(code) || code == http.StatusTooManyRequests
}

// IsNotFound reports whether err is the Status 404 of an API server that has no object of this name. A load
// balancer, or a server without the path, returns a 404 with text. client-go converts such a text into a
// Status with the name and with the cause UnexpectedServerResponse.
func IsNotFound(err error, name string) bool {
	var response apierrors.APIStatus
	if !errors.As(err, &response) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	status := response.Status()
	return status.Code == http.StatusNotFound && status.Reason == metav1.StatusReasonNotFound && status.Details != nil && status.Details.Name == name
}

// localAddress matches the source of a connection in errors of package net.
var localAddress = regexp.MustCompile(`[\w.:%\[\]]+:\d+->`)

// EventMessage returns the text of an error for events and conditions. Ports and streams of connections are
// left out: they would give the same failure another text each time. The log contains them.
func EventMessage(err error) string {
	var late interface{ WriteTimeout() time.Duration } // an error of package leadership
	var transport *url.Error
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("API server did not respond within the write timeout of %v, admission may be slow", late.WriteTimeout())
	case errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded):
		return "API server did not respond"
	}
	return localAddress.ReplaceAllString(err.Error(), "")
}
