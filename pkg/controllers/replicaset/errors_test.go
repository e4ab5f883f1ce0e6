package replicaset

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
