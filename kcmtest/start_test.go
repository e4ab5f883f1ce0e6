package kcmtest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
	"minikcm/internal/faket"
)

// AfterSuite runs when BeforeSuite has failed, too.
func TestStopOfAManagerThatWasNeverStarted(t *testing.T) {
	var m *Manager
	m.Stop()
}

func TestStopOfAManagerThatStoppedByItself(t *testing.T) {
	f, ended := &faket.T{}, make(chan struct{})
	close(ended)
	m := &Manager{t: f, stop: func() {}, done: ended, err: errors.New("broken")}
	m.Stop()
	m.Stop()
	fakeapi.WantEqual(t, "errors", f.Errors, []string{"kcmtest: the controllers stopped by themselves: broken"})
}

func TestStartSucceedsIfControllersStopLater(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for range 20 {
		m := &Manager{done: closed, err: errors.New("broken")}
		if !m.waitUntilStarted(closed, nil) {
			t.Fatal("Start reports why the controllers stopped, want Stop to report that")
		}
	}
}

func TestStartNamesMissingPermissions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		allowed []string
		options []Option
		want    string
	}{
		{"rights", nil, []Option{Controllers("replicaset", "namespace")}, "kcmtest: user manager is not allowed to: "},
		{"rights of the kubelets", []string{"create events", "patch events", "list pods", "watch pods", "delete pods"}, []Option{Controllers(), PodsReady()},
			"kcmtest: user manager is not allowed to: patch pods/status (pods do not become ready)"},
		{"controllers", nil, []Option{Controllers("-namespace"), PodsReady()}, "kcmtest: Controllers: name at least one, there is nothing to run"},
		{"lists", []string{"* *.*"}, []Option{Controllers("namespace")}, "kcmtest: the controllers do not work after 30s: no list of namespaces, pods has come"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &fakeapi.Server{Allowed: tt.allowed} // which finds no list
				transport := fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					server.ServeHTTP(w, req)
					return w.Result(), nil
				})
				f := &faket.T{}
				f.Run(func() { Start(f, &rest.Config{Host: "http://api", Transport: transport}, tt.options...) })
				if !strings.HasPrefix(f.Fatal, tt.want) || strings.Contains(f.Fatal, " --") || len(f.Errors) > 0 {
					t.Errorf("reported %q and %q, want a text that begins with %q and names no flag", f.Fatal, f.Errors, tt.want)
				}
			})
		})
	}
}
