package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"minikcm/internal/fakeapi"
)

func TestBaselineReachedBy(t *testing.T) {
	known := at("100", "90")
	for _, tt := range []struct {
		name  string
		known *Versions
		at    Versions
		want  bool
	}{
		{"not known yet", nil, at("100", "100"), false},
		{"both as far", &known, at("100", "90"), true},
		{"both further", &known, at("1000", "91"), true},
		{"pods behind", &known, at("99", "95"), false},
		{"ReplicaSets behind", &known, at("120", "89"), false},
		{"a cache without a version", &known, at("", "90"), false},
		{"versions that are no numbers", new(at("a", "b")), at("a", "b"), false},
	} {
		var b Baseline
		b.versions.Store(tt.known)
		fakeapi.Want(t, tt.name, b.ReachedBy(tt.at), tt.want)
		b.Reset()
		fakeapi.Want(t, tt.name+", in a new term", b.ReachedBy(tt.at), false)
	}
}

func TestBaselineReadRetries(t *testing.T) {
	for _, tt := range []struct {
		term, took time.Duration
		reads      int
		known      bool
	}{{time.Hour, 2 * baselineRetry, 3, true}, {baselineRetry / 2, baselineRetry / 2, 1, false}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.term)
			defer cancel()
			var b Baseline
			begin, reads := time.Now(), 0
			podRead := func(context.Context) (schema.GroupResource, string, error) { return pods.resource, "7", nil }
			b.Read(ctx, podRead, func(context.Context) (resource schema.GroupResource, version string, err error) {
				if b.ReachedBy(at("1000", "1000")) {
					t.Error("known without a result")
				}
				if reads++; reads < 3 {
					return resource, "", errors.New("no response")
				}
				return sets.resource, "8", nil
			})
			if took := time.Since(begin); reads != tt.reads || took != tt.took || b.ReachedBy(at("7", "8")) != tt.known {
				t.Errorf("%d reads in %v, want %d in %v and a baseline: %t", reads, took, tt.reads, tt.took, tt.known)
			}
		})
	}
}
