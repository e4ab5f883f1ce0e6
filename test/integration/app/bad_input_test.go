package app

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// TestMistakesAreNamedInOneLine requires one line that names the mistake, and exit code 1.
func TestMistakesAreNamedInOneLine(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("not: [a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		{"stray argument", []string{"start"}, []string{"takes no arguments", "start"}},
		{"unknown controller", append(manager(t), "--controllers=replicaset,statefulset"), []string{"--controllers", `statefulset\" is not in the list`, "replicaset-controller"}},
		{"two problems at once", append(manager(t), "--concurrent-replicaset-syncs=0", "--leader-elect-lease-duration=5s"),
			[]string{"--concurrent-replicaset-syncs", "--leader-elect-lease-duration"}},
		{"a flag of other controllers", append(manager(t), "--cluster-cidr=10.0.0.0/8"), []string{"--cluster-cidr", "remove it"}},
		{"no kubeconfig", []string{"--secure-port=0"}, []string{"--kubeconfig"}},
		{"missing kubeconfig", []string{"--kubeconfig=/does/not/exist"}, []string{"--kubeconfig=/does/not/exist", "no such file"}},
		{"broken kubeconfig", []string{"--kubeconfig=" + broken}, []string{"--kubeconfig=" + broken}},
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
