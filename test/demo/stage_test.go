package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// What does not come may be missing because of somebody who is played.
func TestWhoWaitsInVainIsToldOfThePlayersTroubles(t *testing.T) {
	told := make(chan struct{})
	scheduler := play(func(_ context.Context, tried func(error)) {
		tried(errors.New("no binding"))
		close(told)
	})
	defer scheduler.kill()
	<-told
	s := &stage{start: time.Now(), scheduler: scheduler}
	err := s.wait(t.Context(), "pods", time.Millisecond, func(context.Context) (string, bool, error) { return "", false, nil })
	if err == nil || !strings.Contains(err.Error(), "wait for pods: not done within 1ms") || !strings.Contains(err.Error(), "the scheduler: no binding") {
		t.Errorf("told %v", err)
	}
}
