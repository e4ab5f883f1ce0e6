package kcmtest

import (
	"fmt"
	"net"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"minikcm/internal/faket"
	"minikcm/kcmtest"
	"minikcm/test/controlplane"
)

func TestStartFailsTheTestOnErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cfg     *rest.Config
		options []kcmtest.Option
		want    string
	}{
		{"without a configuration", nil, nil, "no rest.Config"},
		{"with an address that is none", &rest.Config{Host: "::::"}, nil, `host "::::"`},
		{"with a certificate that is none", &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}, nil,
			"unable to load root certificates"},
		{"with a controller that does not exist", cluster.Config(), []kcmtest.Option{kcmtest.Controllers("namespaces")},
			`"namespaces" is not in the list of known controllers; known are `},
		{"with a grace that is none", cluster.Config(), []kcmtest.Option{kcmtest.NamespaceGrace(-1), kcmtest.Controllers("replicaset")}, "NamespaceGrace(-1ns): must not be negative"},
		{"with another authority", other(cluster.Config()), nil, "x509: "},
		{"without an API server", &rest.Config{Host: "https://" + freeAddress(t)}, nil, "connection refused"},
		{"with an API server that says nothing", &rest.Config{Host: "https://" + silentAddress(t)}, nil, "TLS handshake timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &faket.T{}
			f.Run(func() { kcmtest.Start(f, tt.cfg, tt.options...) })
			if !strings.Contains(f.Fatal, tt.want) || strings.Contains(f.Fatal, "\n") || len(f.Errors) > 0 {
				t.Errorf("told %q and %q, want one line with %q", f.Fatal, f.Errors, tt.want)
			}
		})
	}
}

// Tests that run at the same time start and stop managers at the same time.
func TestStartInParallel(t *testing.T) {
	client := cluster.Client(t)
	newNamespace(t)
	before := goroutines()
	t.Run("tests", func(t *testing.T) {
		for _, controller := range []string{"namespace", "garbagecollector", "replicaset", "deployment", "podgc"} {
			t.Run(controller, func(t *testing.T) {
				t.Parallel()
				kcmtest.Start(t, cluster.Config(), kcmtest.Controllers(controller))
			})
		}
	})
	noneLeft(t, before, client)
}

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", controlplane.FreePort(t))
}

// silentAddress returns an address that accepts connections and never responds.
func silentAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	controlplane.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func other(cfg *rest.Config) *rest.Config {
	cfg.CAData = nil
	return cfg
}

// TestNothingIsLeftWhenTheTestHasEnded requires no goroutines, and no line in the process-wide logger of klog.
func TestNothingIsLeftWhenTheTestHasEnded(t *testing.T) {
	client := cluster.Client(t)
	newNamespace(t)
	before := goroutines()
	log := &log{}
	_, told := process.told()
	t.Run("test", func(t *testing.T) {
		kcmtest.Start(t, cluster.Config(), kcmtest.Log(log.logger()))
		namespace := newNamespace(t)
		for _, name := range []string{"one", "another"} {
			twin := controlplane.ReplicaSet(namespace, name, 1, func(rs *appsv1.ReplicaSet) {
				rs.Spec.Selector.MatchLabels = map[string]string{"app": "twin"}
				rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
			})
			cluster.Create(t, twin)
		}
		hasPods(t, client, namespace, 2, func(*corev1.Pod) bool { return true })
		cluster.Create(t, controlplane.Pod(namespace, "orphan", map[string]string{"app": "twin"}), controlplane.Deployment(namespace, "web", 30))
		hasPods(t, client, namespace, 32, func(*corev1.Pod) bool { return true })
		controlplane.Must(t, client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	})
	log.end()
	noneLeft(t, before, client)
	if lines, late := log.told(); lines == 0 || len(late) > 0 {
		t.Errorf("%d lines were logged; too late: %q", lines, late)
	}
	if _, all := process.told(); len(all) > len(told) {
		t.Errorf("the process was told %q", all[len(told):])
	}
}
