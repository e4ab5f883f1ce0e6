package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBaselineIsReachedByCachesThatShowAllBeforeTheTerm(t *testing.T) {
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
		{"a cache that nobody asked", &known, Versions{pods.resource: "100"}, false},
		{"versions that are no numbers", new(at("a", "b")), at("a", "b"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b Baseline
			b.versions.Store(tt.known)
			if got := b.ReachedBy(tt.at); got != tt.want {
				t.Errorf("reached by %+v: %v, want %v", tt.at, got, tt.want)
			}
			b.Reset()
			if b.ReachedBy(tt.at) {
				t.Error("a new term inherited the baseline")
			}
		})
	}
}

func TestBaselineIsAskedForUntilItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Baseline
		begin, calls := time.Now(), 0
		b.Read(t.Context(), func(context.Context) (Versions, error) {
			if b.ReachedBy(at("1000", "1000")) {
				t.Error("known without a result")
			}
			if calls++; calls < 3 {
				return nil, errors.New("no answer")
			}
			return at("7", "8"), nil
		})
		if took := time.Since(begin); calls != 3 || took != 2*baselineRetry || !b.ReachedBy(at("7", "8")) {
			t.Errorf("known %t after %d calls in %v, want known after 3 calls in 2s", b.ReachedBy(at("7", "8")), calls, took)
		}
	})
}

func TestBaselineIsNotAskedForAfterTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), baselineRetry/2)
		defer cancel()
		var b Baseline
		b.Read(ctx, func(context.Context) (Versions, error) { return nil, errors.New("no answer") })
		if b.ReachedBy(at("1", "1")) {
			t.Error("known without a result")
		}
	})
}
