package node

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefused(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"conflict":                        {apierrors.NewConflict(nodes, "n", errors.New("changed")), true},
		"not found":                       {apierrors.NewNotFound(nodes, "n"), true},
		"forbidden, wrapped":              {fmt.Errorf("patch: %w", apierrors.NewForbidden(nodes, "n", errors.New("no"))), true},
		"too many requests":               {apierrors.NewTooManyRequests("later", 1), true},
		"etcd changed its leader":         {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), false},
		"a proxy's 502":                   {apierrors.NewGenericServerResponse(502, "patch", nodes, "n", "", 0, false), false},
		"unavailable":                     {apierrors.NewServiceUnavailable("stopping"), false},
		"the server gave up waiting":      {apierrors.NewTimeoutError("slow", 1), false},
		"the server asks to try again":    {apierrors.NewServerTimeout(nodes, "patch", 1), false},
		"the request took too long, 408":  {apierrors.NewGenericServerResponse(408, "patch", nodes, "n", "", 0, false), false},
		"no answer":                       {context.DeadlineExceeded, false},
		"connection reset before the end": {errors.New("read: connection reset by peer"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refused(tc.err); got != tc.want {
				t.Errorf("refused(%v) = %v, want %v", tc.err, got, tc.want)
			}
		})
	}
}
