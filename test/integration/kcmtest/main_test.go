// Package kcmtest tests package kcmtest on real API servers.
package kcmtest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"minikcm/test/controlplane"
)

var cluster *controlplane.Cluster

var process = &log{over: true}

func TestMain(m *testing.M) {
	klog.SetLogger(process.logger())
	os.Exit(controlplane.Run(m, controlplane.Options{}, func(c *controlplane.Cluster) { cluster = c }))
}

const patience = 2 * time.Minute

func newNamespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kcmtest-"}}
	cluster.Create(t, ns)
	return ns.Name
}

func deleteNamespace(t testing.TB, client kubernetes.Interface, name string) {
	t.Helper()
	controlplane.Must(t, client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s: %v, want it gone", name, err)
		}
		return nil
	})
}

// hasPods waits until a namespace has so many pods that fit.
func hasPods(t testing.TB, client kubernetes.Interface, namespace string, want int, fits func(*corev1.Pod) bool) {
	t.Helper()
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for i := range pods.Items {
			if fits(&pods.Items[i]) {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d of %d pods fit, want %d", n, len(pods.Items), want)
		}
		return nil
	})
}

func goroutines() map[string]string {
	buf := make([]byte, 16<<20)
	found := map[string]string{}
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		name, _, _ := strings.Cut(stack, " [")
		_, creator, _ := strings.Cut(stack, "created by ")
		for _, of := range []string{"minikcm/pkg/", "minikcm/kcmtest", "k8s.io/", "net/http", "golang.org/x/net/http2"} {
			if strings.HasPrefix(creator, of) {
				found[name] = stack
			}
		}
	}
	return found
}

// noneLeft fails the test if new goroutines remain. Closed connections need a moment to end.
func noneLeft(t testing.TB, before map[string]string, clients ...kubernetes.Interface) {
	t.Helper()
	controlplane.Eventually(t, patience, func(context.Context) error {
		for _, client := range clients {
			client.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
		}
		var left []string
		for name, stack := range goroutines() {
			if _, was := before[name]; !was {
				left = append(left, stack)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
		}
		return nil
	})
}

type log struct {
	lock  sync.Mutex
	over  bool
	lines int
	late  []string
}

func (l *log) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.lock.Lock()
		defer l.lock.Unlock()
		l.lines++
		if l.over {
			l.late = append(l.late, prefix+" "+args)
		}
	}, funcr.Options{Verbosity: 6})
}

func (l *log) end() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.over = true
}

func (l *log) told() (lines int, late []string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.lines, l.late
}
