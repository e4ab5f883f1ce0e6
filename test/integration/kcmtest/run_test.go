package kcmtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

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
			deleteNamespace(t, client, newNamespace(t, client))
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

func TestRunSaysWhyItCannotGoOn(t *testing.T) {
	err := kcmtest.Run(t.Context(), &rest.Config{Host: "https://" + freeAddress(t)})
	if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Run = %v, want one line with why nobody answers", err)
	}
}
