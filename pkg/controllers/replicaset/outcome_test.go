package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestClassify(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	code := func(code int) error { return apierrors.NewGenericServerResponse(code, "post", pods, "a", "", 0, true) }
	transport := func(err error) error { return &url.Error{Op: "Post", URL: "https://127.0.0.1/", Err: err} }
	ending := apierrors.NewForbidden(pods, "a", errors.New("the namespace is terminating"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tt := range []struct {
		name string
		err  error
		want outcome
	}{
		{"answered", nil, done},
		{"quota, webhook or RBAC", apierrors.NewForbidden(pods, "a", errors.New("exceeded quota")), rejected},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), rejected},
		{"bad request", code(http.StatusBadRequest), rejected},
		{"unauthorized", apierrors.NewUnauthorized("who are you"), rejected},
		{"too large", apierrors.NewRequestEntityTooLargeError("big"), rejected},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), rejected},
		{"name taken", apierrors.NewAlreadyExists(pods, "a"), exists},
		{"name generation gave up", apierrors.NewGenerateNameConflict(pods, "a", 1), exists},
		{"precondition failed", apierrors.NewConflict(pods, "a", errors.New("uid")), conflict},
		{"not found", apierrors.NewNotFound(pods, "a"), missing},
		{"namespace terminating", ending, terminating},
		{"wrapped", fmt.Errorf("create: %w", apierrors.NewAlreadyExists(pods, "a")), exists},

		{"internal error", apierrors.NewInternalError(errors.New("etcd")), unknown},
		{"bad gateway", code(http.StatusBadGateway), unknown},
		{"unavailable", code(http.StatusServiceUnavailable), unknown},
		{"gateway timeout", apierrors.NewTimeoutError("too slow", 0), unknown},
		{"server timeout", apierrors.NewServerTimeout(pods, "create", 1), unknown},
		{"request timeout", code(http.StatusRequestTimeout), unknown},
		{"a status without a code", &apierrors.StatusError{ErrStatus: metav1.Status{Message: "?"}}, unknown},
		{"connection reset", transport(syscall.ECONNRESET), unknown},
		{"deadline", transport(context.DeadlineExceeded), unknown},
		{"answer that cannot be read", errors.New("unexpected EOF"), unknown},

		{"we are being stopped", transport(context.Canceled), stopped},
		{"stopped by the fence", fmt.Errorf("no lease: %w", context.Canceled), stopped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := classify(tt.err); got != tt.want {
				t.Errorf("classify(%v) = %d, want %d", tt.err, got, tt.want)
			}
		})
	}
}

func TestForUsers(t *testing.T) {
	reset := &url.Error{Op: "Post", URL: "https://127.0.0.1:4711/", Err: errors.New("stream 7 was reset")}
	for _, err := range []error{reset, fmt.Errorf("unable to delete pods: %w", reset), context.DeadlineExceeded} {
		if got := forUsers(err); got != "no answer from the API server" {
			t.Errorf("forUsers(%v) = %q", err, got)
		}
	}
	if got := forUsers(errNoLabels); got != "unable to create pods, no labels" {
		t.Errorf("forUsers(errNoLabels) = %q", got)
	}
}
