package outcome_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"minikcm/pkg/leadership"
	"minikcm/pkg/outcome"
)

func TestEventMessage(t *testing.T) {
	reset := &url.Error{Op: "Post", URL: "https://127.0.0.1:4711/", Err: errors.New("stream 7 was reset")}
	for _, err := range []error{reset, fmt.Errorf("unable to delete pods: %w", reset), context.DeadlineExceeded} {
		if got := outcome.EventMessage(err); got != "API server did not respond" {
			t.Errorf("EventMessage(%v) = %q", err, got)
		}
	}
	late := fmt.Errorf("post: %w", &url.Error{Op: "Post", URL: "https://127.0.0.1:6443", Err: &leadership.TimeoutError{Method: "POST", Path: "/", Most: 11 * time.Second}})
	if got, want := outcome.EventMessage(late), "API server did not respond within the write timeout of 11s, admission may be slow"; got != want {
		t.Errorf("EventMessage(%v) = %q, want %q", late, got, want)
	}
	for _, here := range []string{"10.0.0.1:53412", "[fd00::1]:53412", "[fe80::1%eth0]:53412"} {
		webhook := errors.New("conversion webhook for widgets failed: read tcp " + here + "->10.96.0.12:443: connection reset by peer")
		if got, want := outcome.EventMessage(webhook), "conversion webhook for widgets failed: read tcp 10.96.0.12:443: connection reset by peer"; got != want {
			t.Errorf("EventMessage(%v) = %q, want %q", webhook, got, want)
		}
	}
	if got := outcome.EventMessage(errors.New("unable to create pods, no labels")); got != "unable to create pods, no labels" {
		t.Errorf("EventMessage of another error = %q", got)
	}
}
