package outcome_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/leadership"
	"minikcm/pkg/outcome"
)

func TestEventMessage(t *testing.T) {
	reset := &url.Error{Op: "Post", URL: "https://127.0.0.1:4711/", Err: errors.New("stream 7 was reset")}
	for _, err := range []error{reset, fmt.Errorf("unable to delete pods: %w", reset), context.DeadlineExceeded} {
		fakeapi.Want(t, err.Error(), outcome.EventMessage(err), "API server did not respond")
	}
	late := fmt.Errorf("post: %w", &url.Error{Op: "Post", URL: "https://127.0.0.1:6443", Err: &leadership.TimeoutError{Method: "POST", Path: "/", Limit: 11 * time.Second}})
	fakeapi.Want(t, late.Error(), outcome.EventMessage(late), "API server did not respond within the write timeout of 11s, admission may be slow")
	for _, here := range []string{"10.0.0.1:53412", "[fd00::1]:53412", "[fe80::1%eth0]:53412"} {
		webhook := errors.New("conversion webhook for widgets failed: read tcp " + here + "->10.96.0.12:443: connection reset by peer")
		fakeapi.Want(t, webhook.Error(), outcome.EventMessage(webhook), "conversion webhook for widgets failed: read tcp 10.96.0.12:443: connection reset by peer")
	}
	fakeapi.Want(t, "message of another error", outcome.EventMessage(errors.New("unable to create pods, no labels")), "unable to create pods, no labels")
}
