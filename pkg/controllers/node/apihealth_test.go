package node

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestUnavailable(t *testing.T) {
	lease := schema.GroupResource{Resource: "leases"}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"not found", apierrors.NewNotFound(lease, "n"), false},
		{"invalid", apierrors.NewBadRequest("x"), false},
		{"internal error", errOutage, true},
		{"too many requests", apierrors.NewTooManyRequests("x", 1), true},
		{"connection refused", errors.New("dial tcp: connection refused"), true},
		{"our deadline", fmt.Errorf("get: %w", context.DeadlineExceeded), true},
		{"the end of the term", fmt.Errorf("get: %w", context.Canceled), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := isUnavailable(tt.err); got != tt.want {
				t.Errorf("isUnavailable = %v, want %v", got, tt.want)
			}
		})
	}
}
