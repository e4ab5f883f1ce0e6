package timing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestSleep(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ends    time.Duration
		want    bool
		wantFor time.Duration
	}{
		{"all of it", time.Hour, true, time.Minute},
		{"until the context ends", time.Second, false, time.Second},
		{"not at all if it has ended", 0, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
			defer cancel()
			begun := time.Now()
			if got := Sleep(ctx, clock.RealClock{}, time.Minute); got != tt.want || time.Since(begun) != tt.wantFor {
				t.Errorf("%s: %v after %v, want %v after %v", tt.name, got, time.Since(begun), tt.want, tt.wantFor)
			}
		})
	}
}
