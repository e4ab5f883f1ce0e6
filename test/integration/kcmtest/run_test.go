package kcmtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"minikcm/kcmtest"
)

func TestRunEndsWithItsContext(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	inTime, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	enough, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for name, tt := range map[string]struct {
		ctx  context.Context
		work func()
	}{
		"before it begins": {ended, func() {}},
		"by its deadline":  {inTime, func() {}},
		"with a cause": {enough, func() {
			client := cluster.Client(t)
			deleteNamespace(t, client, newNamespace(t))
			cancel(errors.New("enough"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, told := process.told()
			returned := make(chan error, 1)
			go func() { returned <- kcmtest.Run(tt.ctx, cluster.Config()) }()
			tt.work()
			if err := <-returned; err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
			if _, all := process.told(); len(all) > len(told) {
				t.Errorf("the process was told %q", all[len(told):])
			}
		})
	}
}
