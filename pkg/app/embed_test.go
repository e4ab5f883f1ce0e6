package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/garbagecollector"
	"minikcm/pkg/controllers/namespace"
)

// A manager rejects settings that would have no effect.
func TestAManagerMakesItsOwnConnections(t *testing.T) {
	dials := &rest.Config{Host: "https://127.0.0.1", Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("dialled") }}
	sends := &rest.Config{Host: "https://127.0.0.1", Transport: http.DefaultTransport}
	for _, tt := range []struct {
		name            string
		rest            *rest.Config
		election, watch bool
		want            string // empty: no error
	}{
		{"neither", &rest.Config{Host: "https://127.0.0.1"}, true, true, ""},
		{"a Dial", dials, false, false, "rest.Config.Dial"},
		{"a Transport", sends, false, false, ""},
		{"a Transport under election", sends, true, false, "rest.Config.Transport"},
		{"a Transport whose watches are looked after", sends, false, true, "rest.Config.Transport"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := DefaultConfig(tt.rest, nil)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Serving.Port, cfg.Election.Enabled, cfg.WatchLiveness = 0, tt.election, tt.watch
			if _, err := New(cfg); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("New = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestDefaultConfigLeavesOutWhatItsOwnConfigSwitchesOff(t *testing.T) {
	for _, on := range []bool{true, false} {
		collects := garbagecollector.DefaultConfig()
		collects.Enabled = on
		cfg, err := DefaultConfig(&rest.Config{Host: "https://127.0.0.1"}, []controller.Registration{garbagecollector.Registration(collects)})
		if err != nil {
			t.Fatal(err)
		}
		if runs := slices.Contains(controllerNames(cfg.Controllers), "garbage-collector-controller"); runs != on {
			t.Errorf("enabled: %v; among the controllers that run: %v", on, runs)
		}
	}
}

func TestWhatIsWrongWithAConfigIsOneLine(t *testing.T) {
	wrong := namespace.DefaultConfig()
	wrong.Grace, wrong.Workers = -1, -1
	cfg, err := DefaultConfig(&rest.Config{Host: "https://127.0.0.1"}, []controller.Registration{namespace.Registration(wrong)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "grace-period") || !strings.Contains(err.Error(), "concurrent-namespace-syncs") {
		t.Errorf("New = %v, want one line with both problems", err)
	}
}
