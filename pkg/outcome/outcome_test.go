package outcome

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

	"minikcm/internal/fakeapi"
)

func TestFromError(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	code := func(code int) error { return apierrors.NewGenericServerResponse(code, "post", pods, "a", "", 0, true) }
	transport := func(err error) error { return &url.Error{Op: "Post", URL: "https://127.0.0.1/", Err: err} }
	ending := apierrors.NewForbidden(pods, "a", errors.New("the namespace is terminating"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tt := range []struct {
		name string
		err  error
		want Outcome
	}{
		{"no error", nil, Done},
		{"quota, webhook or RBAC", apierrors.NewForbidden(pods, "a", errors.New("exceeded quota")), Rejected},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), Rejected},
		{"bad request", code(http.StatusBadRequest), Rejected},
		{"unauthorized", apierrors.NewUnauthorized("unknown user"), Rejected},
		{"too large", apierrors.NewRequestEntityTooLargeError("big"), Rejected},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), Rejected},
		{"name taken", apierrors.NewAlreadyExists(pods, "a"), Exists},
		{"name generation gave up", apierrors.NewGenerateNameConflict(pods, "a", 1), Exists},
		{"precondition failed", apierrors.NewConflict(pods, "a", errors.New("uid")), Conflict},
		{"not found", apierrors.NewNotFound(pods, "a"), NotFound},
		{"the page of a load balancer", code(http.StatusNotFound), Rejected},
		{"namespace terminating", ending, Terminating},
		{"wrapped", fmt.Errorf("create: %w", apierrors.NewAlreadyExists(pods, "a")), Exists},

		{"internal error", apierrors.NewInternalError(errors.New("etcd")), Unknown},
		{"etcd changed its leader", apierrors.NewInternalError(errors.New("etcdserver: leader changed")), Unknown},
		{"bad gateway", code(http.StatusBadGateway), Unknown},
		{"unavailable", code(http.StatusServiceUnavailable), Unknown},
		{"gateway timeout", apierrors.NewTimeoutError("too slow", 0), Unknown},
		{"server timeout", apierrors.NewServerTimeout(pods, "create", 1), Unknown},
		{"request timeout", code(http.StatusRequestTimeout), Unknown},
		{"a status without a code", &apierrors.StatusError{ErrStatus: metav1.Status{Message: "?"}}, Unknown},
		{"connection reset", transport(syscall.ECONNRESET), Unknown},
		{"deadline", transport(context.DeadlineExceeded), Unknown},
		{"incomplete response", errors.New("unexpected EOF"), Unknown},

		{"canceled", transport(context.Canceled), Unknown},
		{"canceled by the fence", fmt.Errorf("no lease: %w", context.Canceled), Unknown},

		{"a webhook without a response", apierrors.NewInternalError(errors.New(`failed calling webhook "a.b.c": an error on the server`)), Rejected},
		{"a webhook that rejects with 500", code(http.StatusInternalServerError), Unknown},
	} {
		fakeapi.Want(t, tt.name, FromError(tt.err), tt.want)
	}
}

func TestNotFoundNamesTheObject(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"the object", apierrors.NewNotFound(pods, "a"), true},
		{"wrapped", fmt.Errorf("read: %w", apierrors.NewNotFound(pods, "a")), true},
		{"another object", apierrors.NewNotFound(pods, "b"), false},
		{"the page of a load balancer", apierrors.NewGenericServerResponse(http.StatusNotFound, "get", pods, "a", "404 page not found", 0, true), false},
		{"another status", apierrors.NewConflict(pods, "a", nil), false},
		{"no response", syscall.ECONNREFUSED, false},
		{"no error", nil, false},
	} {
		fakeapi.Want(t, tt.name, IsNotFound(tt.err, "a"), tt.want)
	}
}
