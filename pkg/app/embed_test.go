package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/serving"
)

// A manager in another program rejects settings that would have no effect, and client-go's gates of that program.
func TestNewManager(t *testing.T) {
	before := clientfeatures.FeatureGates()
	t.Cleanup(func() { clientfeatures.ReplaceFeatureGates(before) })
	plain := &rest.Config{Host: "https://127.0.0.1"}
	dials := &rest.Config{Host: "https://127.0.0.1", Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("dialled") }}
	sends := &rest.Config{Host: "https://127.0.0.1", Transport: http.DefaultTransport}
	wrong := namespace.DefaultConfig()
	wrong.Grace, wrong.Workers = -1, -1
	for _, tt := range []struct {
		name            string
		rest            *rest.Config
		election, watch bool
		namespaces      []*namespace.Config
		gates           clientfeatures.Gates
		want            []string // nil: no error
	}{
		{"without election", plain, false, true, nil, before, nil},
		{"with election", plain, true, true, nil, before, nil},
		{"a Dial", dials, false, false, nil, before, []string{"rest.Config.Dial"}},
		{"a Transport", sends, false, false, nil, before, nil},
		{"a Transport under election", sends, true, false, nil, before, []string{"rest.Config.Transport"}},
		{"a Transport whose watches are monitored", sends, false, true, nil, before, []string{"rest.Config.Transport"}},
		{"invalid values", plain, false, false, []*namespace.Config{wrong, wrong}, before,
			[]string{"--secure-port: -2", "grace-period", "concurrent-namespace-syncs", "namespace-controller is given twice"}},
		{"without AtomicFIFO", plain, false, false, nil, withoutAtomicFIFO{before}, []string{"AtomicFIFO is off"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clientfeatures.ReplaceFeatureGates(tt.gates)
			var controllers []controller.Registration
			for _, n := range tt.namespaces {
				controllers = append(controllers, namespace.Registration(n))
			}
			cfg := fakeapi.Must(DefaultConfig(tt.rest, controllers))
			cfg.Serving.Port, cfg.Election.Enabled, cfg.CheckFreshness = -len(tt.namespaces), tt.election, tt.watch
			m, err := New(cfg)
			if (err == nil) != (tt.want == nil) || err != nil && strings.Contains(err.Error(), "\n") {
				t.Fatalf("New = %v, want one line with %q", err, tt.want)
			}
			for _, want := range tt.want {
				fakeapi.WantPart(t, "error of New", err.Error(), want)
			}
			// As in kube-controller-manager, there is a check of the elector only with election.
			if err == nil && slices.ContainsFunc(m.liveChecks(), func(c serving.Check) bool { return c.Name == "leaderElection" }) != tt.election {
				t.Error("the check of the elector is not that of the configuration")
			}
			ctx, stop := context.WithCancel(t.Context())
			if stop(); err == nil {
				fakeapi.NoError(t, m.Run(ctx))
				fakeapi.WantPart(t, "error of a second Run", fmt.Sprint(m.Run(ctx)), "called before")
			}
		})
	}
}

type withoutAtomicFIFO struct{ clientfeatures.Gates }

func (w withoutAtomicFIFO) Enabled(key clientfeatures.Feature) bool {
	return key != clientfeatures.AtomicFIFO && w.Gates.Enabled(key)
}
