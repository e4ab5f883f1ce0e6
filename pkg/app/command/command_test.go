package command

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/app"
)

// minimalKubeconfig names a server and nothing else.
const minimalKubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"x",
	"clusters":[{"name":"c","cluster":{"server":"https://h"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`

// A command line is either understood or refused with one clear line.
func TestCommandRejects(t *testing.T) {
	good := fakeapi.WriteFile(t, "kubeconfig", []byte(minimalKubeconfig))
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"--foo"}, "unknown flag: --foo"},
		{"bad value", []string{"--secure-port=x"}, `invalid argument "x" for "--secure-port" flag`},
		{"argument", []string{"", "extra"}, `controller-manager takes no arguments, got ["" "extra"]`},
		{"bad gate", []string{"--feature-gates=PodDeletionCost=maybe"}, "invalid value of PodDeletionCost=maybe"},
		{"gate of what we always do", []string{"--feature-gates=SeparateTaintEvictionController=false"}, "cannot set feature gate SeparateTaintEvictionController to false, feature is locked to true"},
		{"gate of what we never do", []string{"--feature-gates=CoordinatedLeaderElection=true"}, "locked to false"},
		{"patch version to emulate", []string{"--emulated-version=1.37.1"}, "patch version not allowed"},
		{"bad version", []string{"--version=maybe"}, "--version=maybe: want true, false or raw"},
		{"several problems", []string{"--secure-port=-1", "--concurrent-namespace-syncs=0"}, "[--secure-port: "},
		{"bad gate among them", []string{"--feature-gates=PodDeletionCost=maybe", "--secure-port=-1"}, "invalid syntax, --secure-port: -1 must be"},
		{"missing kubeconfig", []string{"--kubeconfig=/missing/file"}, "--kubeconfig=/missing/file: stat /missing/file: no such file or directory"},
		{"kubeconfig that is none", []string{"--kubeconfig=" + fakeapi.WriteFile(t, "k", []byte("x\ny\n"))}, "error loading config file"},
		{"kubeconfig without the file it names", []string{"--kubeconfig=" + fakeapi.WriteFile(t, "k", []byte(`{"current-context":"x","clusters":[{"name":"c","cluster":{"server":"https://h","certificate-authority":"/missing/ca"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`))}, "/missing/ca"},
		{"kubeconfig with a file that is no certificate", []string{"--kubeconfig=" + fakeapi.WriteFile(t, "k", []byte(`{"current-context":"x","clusters":[{"name":"c","cluster":{"server":"https://h","certificate-authority":"`+good+`"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`))}, "/k: unable to load root certificates"},
		{"bad address", []string{"--master=:::", "--kubeconfig=" + good}, "--master=:::: "},
		{"no API server", []string{"--kubeconfig="}, "--kubeconfig: needed to reach an API server"},
	} {
		err := executed(t, &bytes.Buffer{}, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: command returned %q, want one line with %q", tt.name, err, tt.want)
		}
	}
}

// executed runs the command with a context that has ended, so that it stops when it would wait.
func executed(t *testing.T, out *bytes.Buffer, args ...string) error {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cmd := New(app.Controllers())
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SilenceErrors = true
	return cmd.ExecuteContext(ctx)
}

func TestVersionFlag(t *testing.T) {
	for arg, want := range map[string]string{"--version": "controller-manager v", "--version=raw": "version.Info{"} {
		var out bytes.Buffer
		fakeapi.NoError(t, executed(t, &out, arg))
		fakeapi.WantPart(t, arg, out.String(), want)
	}
}

// Help has upstream's sections, and none of the flags that mean nothing here.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	fakeapi.NoError(t, executed(t, &out, "--help"))
	var sections []string
	for line := range strings.Lines(out.String()) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), " flags:"); ok {
			sections = append(sections, name)
		}
	}
	want := []string{"Debugging", "Generic", "Secure serving", "Authentication", "Authorization", "Deployment-controller", "Endpointslice-controller", "Garbage-collector-controller", "Namespace-controller", "Node-lifecycle-controller",
		"Pod-garbage-collector-controller", "Replicaset-controller", "Metrics", "Logs", "Misc", "Global"}
	fakeapi.WantEqual(t, "sections of --help", sections, want)
	for _, loop := range []string{"Deployments", "ReplicaSets", "EndpointSlices", "node health", "taint eviction", "pod garbage collection", "namespaces", "the garbage collector"} {
		text, _, _ := strings.Cut(out.String(), "Usage:")
		fakeapi.WantPart(t, "help about the program", text, loop)
	}
	if strings.Contains(out.String(), "root-ca-file") {
		t.Error("help shows flags that mean nothing here")
	}
}
