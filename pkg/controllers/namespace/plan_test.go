package namespace

import (
	"testing"
	"time"
)

func TestNextSync(t *testing.T) {
	for _, tt := range []struct {
		waited     time.Duration
		unfinished int
		want       time.Duration
	}{
		{-5 * time.Second, 1, 300 * time.Millisecond},
		{0, 40, 300 * time.Millisecond},
		{4 * time.Second, 1, time.Second},
		{4 * time.Second, 90, 2 * time.Second},
		{32 * time.Second, 90, 8 * time.Second},
		{10 * time.Minute, 1, 8 * time.Second},
		{10*time.Minute + 1, 1, 30 * time.Second},
		{0, 10000, 30 * time.Second},
	} {
		if got := nextSync(tt.waited, tt.unfinished); got != tt.want {
			t.Errorf("next sync %v after %v with %d namespaces, want %v", got, tt.waited, tt.unfinished, tt.want)
		}
	}
}
