package faket

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) { Main(m) }

func TestErrorInABubbleWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		utilruntime.HandleErrorWithContext(klog.NewContext(t.Context(), klog.Logger{}), errors.New("broken"), "Failed")
		if waited := time.Since(start); waited > 0 {
			t.Errorf("waited %v", waited)
		}
	})
}
