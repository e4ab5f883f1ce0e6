package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// authorityPeriod is how often client-go v0.37 reads the file with the authorities of the API server.
const authorityPeriod = 5 * time.Minute

// The API server comes back with a certificate of another authority, which the file that the kubeconfig names has too.
func TestNewAuthorityIsFollowedWithoutARestart(t *testing.T) {
	controlplane.SkipUnlessLong(t) // it waits for client-go
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	proxy := faults.New(t, cluster.ManagerConfig("manager"))
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func() {
		t.Helper()
		if err := os.WriteFile(file, proxy.Config().CAData, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	cfg := proxy.Config()
	cfg.TLSClientConfig = rest.TLSClientConfig{CAFile: file}
	p := controlplane.StartProcess(t, "--secure-port=0", "--controllers=replicaset", "--kubeconfig="+cluster.KubeconfigFor(t, cfg))
	p.WaitForLog(t, "Term begins")
	if err := proxy.RotateAuthority(); err != nil {
		t.Fatal(err)
	}
	write()
	changed := time.Now()
	if _, err := client.AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, "web", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, authorityPeriod+time.Minute, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) == 0 {
			err = errors.New("no pod yet")
		}
		return err
	})
	t.Logf("works again %v after the change", time.Since(changed))
	send(t, p, syscall.SIGTERM) // its lease is for the next test
	endsWith(t, p, 0)
}
