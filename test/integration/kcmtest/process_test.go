package kcmtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"minikcm/internal/faket"
	program "minikcm/kcmtest/process"
	"minikcm/test/controlplane"
)

func kubeconfig(t *testing.T, cfg *rest.Config) []byte {
	t.Helper()
	text, err := os.ReadFile(cluster.KubeconfigFor(t, cfg))
	controlplane.Must(t, err)
	return text
}

// TestTheProgramWorks: package process reads messages of the program's log.
func TestTheProgramWorks(t *testing.T) {
	script := filepath.Join(t.TempDir(), "controller-manager")
	controlplane.Must(t, os.WriteFile(script, []byte("#!/bin/sh\n"+controlplane.ManagerBinary(t)+" -v=4 \"$@\"\n"), 0o700))
	for name, binary := range map[string]string{"alone": controlplane.ManagerBinary(t), "behind a script": script} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			p := program.Start(t, kubeconfig(t, cluster.Config()), program.Binary(binary), program.Controllers("namespace"), program.Log(&log))
			client := cluster.Client(t)
			deleteNamespace(t, client, newNamespace(t))
			p.Stop()
			if !strings.Contains(log.String(), `"Stopped"`) {
				t.Errorf("the program was not stopped in order:\n%s", &log)
			}
		})
	}
}

func TestProgramReportsStartErrors(t *testing.T) {
	const exits = ": exit status 1"
	ofKlog := regexp.MustCompile(`[IWEF]\d{4} |\\"|err=|reason=`)
	for _, tt := range []struct {
		name       string
		kubeconfig []byte
		controller string
		want, ends string
	}{
		{"without a kubeconfig", nil, "namespace", "no configuration has been provided", exits},
		{"with a controller that does not exist", kubeconfig(t, cluster.Config()), "namespaces", `"namespaces"`, exits},
		{"without rights", kubeconfig(t, cluster.ConfigFor("stranger")), "namespace", "user stranger is not allowed to: ", exits},
		{"with another authority", kubeconfig(t, other(cluster.Config())), "namespace", "x509: ", exits},
		{"without an API server", kubeconfig(t, &rest.Config{Host: "https://" + freeAddress(t)}), "namespace", "connection refused", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, binary := &faket.T{}, controlplane.ManagerBinary(t)
			f.Run(func() { program.Start(f, tt.kubeconfig, program.Binary(binary), program.Controllers(tt.controller)) })
			if !strings.Contains(f.Fatal, tt.want) || !strings.HasSuffix(f.Fatal, tt.ends) ||
				strings.Contains(f.Fatal, "\n") || ofKlog.MatchString(f.Fatal) || len(f.Errors) > 0 {
				t.Errorf("told %q and %q, want one line with %q and nothing of a log's", f.Fatal, f.Errors, tt.want)
			}
		})
	}
}
