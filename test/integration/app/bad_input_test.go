package app

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// TestMistakesAreNamedInOneLine requires one line that names the mistake, and exit code 1. TestCommandRefuses and
// TestValidate have the other mistakes.
func TestMistakesAreNamedInOneLine(t *testing.T) {
	t.Parallel()
	stranger := cluster.ConfigFor("stranger")
	other := httptest.NewTLSServer(nil)
	t.Cleanup(other.Close)
	wrongCA := cluster.Config()
	wrongCA.Host = other.URL

	for _, tt := range []struct {
		name string
		args []string
		want []string // all in the last line
	}{
		{"unknown flag", []string{"--no-such-flag"}, []string{"unknown flag: --no-such-flag"}},
		{"two problems at once", append(manager(t), "--concurrent-replicaset-syncs=0", "--leader-elect-lease-duration=5s"),
			[]string{"--concurrent-replicaset-syncs", "--leader-elect-lease-duration"}},
		{"wrong CA", []string{"--secure-port=0", "--kubeconfig=" + cluster.KubeconfigFor(t, wrongCA)}, []string{"certificate", other.Listener.Addr().String()}},
		{"no rights", []string{"--secure-port=0", "--kubeconfig=" + cluster.KubeconfigFor(t, stranger)}, []string{"user stranger is not allowed to", "create pods", "update replicasets.apps/status"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := controlplane.StartProcess(t, tt.args...)
			code, err := p.Wait(time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(p.Output()), "\n")
			last := lines[len(lines)-1]
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, want := range tt.want {
				if !strings.Contains(last, want) {
					t.Errorf("last line does not say %q:\n%s", want, last)
				}
			}
			if strings.Contains(p.Output(), "goroutine ") {
				t.Errorf("a stack trace was printed:\n%s", p.Output())
			}
		})
	}
}
