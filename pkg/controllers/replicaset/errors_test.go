package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"minikcm/pkg/leadership"
)

func TestForUsers(t *testing.T) {
	reset := &url.Error{Op: "Post", URL: "https://127.0.0.1:4711/", Err: errors.New("stream 7 was reset")}
	for _, err := range []error{reset, fmt.Errorf("unable to delete pods: %w", reset), context.DeadlineExceeded} {
		if got := forUsers(err); got != "no answer from the API server" {
			t.Errorf("forUsers(%v) = %q", err, got)
		}
	}
	late := fmt.Errorf("post: %w", &url.Error{Op: "Post", URL: "https://127.0.0.1:6443", Err: &leadership.TimeoutError{Method: "POST", Path: "/", Most: 11 * time.Second}})
	if got, want := forUsers(late), "no answer from the API server in the 11s that a write has, admission may be slow"; got != want {
		t.Errorf("forUsers(%v) = %q, want %q", late, got, want)
	}
	if got := forUsers(errNoLabels); got != "unable to create pods, no labels" {
		t.Errorf("forUsers(errNoLabels) = %q", got)
	}
}

func TestDecisiveErrorOfASync(t *testing.T) {
	first, next := errors.New("first"), errors.New("next")
	ending := fmt.Errorf("no lease: %w", context.Canceled)
	for _, tt := range []struct{ first, next, want error }{
		{nil, nil, nil},
		{nil, next, next},
		{first, nil, first},
		{first, next, first},
		{first, ending, ending},
		{ending, next, ending},
		{first, errTerminating, errTerminating},
		{errTerminating, next, errTerminating},
		{errTerminating, ending, ending},
		{errCut, apierrors.NewTimeoutError("slow", 0), errCut},
	} {
		if got := decisive(tt.first, tt.next); got != tt.want {
			t.Errorf("of %v and %v %v is decisive, want %v", tt.first, tt.next, got, tt.want)
		}
	}
}
