package faults

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

const patience = 30 * time.Second

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{}, func(c *controlplane.Cluster) { cluster = c }))
}

// encodings runs a test with a client that speaks each of the API server's two usual encodings.
func encodings(t *testing.T, test func(t *testing.T, proxy *faults.Proxy, client kubernetes.Interface)) {
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(contentType, func(t *testing.T) {
			proxy := faults.New(t, cluster.Config())
			config := proxy.Config()
			config.ContentType = contentType
			test(t, proxy, controlplane.ClientFor(t, config))
			for _, r := range proxy.Requests() {
				if r.Proto != "HTTP/2.0" {
					t.Errorf("client spoke %s: %+v", r.Proto, r)
				}
			}
		})
	}
}

func TestRequestsArriveAsTheUser(t *testing.T) {
	proxy := faults.New(t, cluster.ConfigFor("nobody-special"))
	client := controlplane.ClientFor(t, proxy.Config())
	_, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list nodes as a user without rights: %v, want forbidden", err)
	}
}

func TestFrozenPodWatch(t *testing.T) {
	encodings(t, func(t *testing.T, proxy *faults.Proxy, client kubernetes.Interface) {
		ns := cluster.Namespace(t)
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
		pods, configMaps := factory.Core().V1().Pods().Lister(), factory.Core().V1().ConfigMaps().Lister()
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); factory.Shutdown() }()
		factory.Core().V1().Pods().Informer()
		factory.Core().V1().ConfigMaps().Informer()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		cached := func(want int) func(context.Context) error {
			return func(context.Context) error {
				got, err := pods.List(labels.Everything())
				if err != nil || len(got) != want {
					return fmt.Errorf("%d pods cached, want %d (%v)", len(got), want, err)
				}
				return nil
			}
		}

		freeze := proxy.FreezeWatches(faults.Watches("pods"))
		direct := cluster.Client(t)
		for i := range 3 {
			name := fmt.Sprintf("p%d", i)
			if _, err := direct.CoreV1().Pods(ns).Create(ctx, controlplane.Pod(ns, name, nil), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after-the-pods"}}
		if _, err := direct.CoreV1().ConfigMaps(ns).Create(ctx, late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controlplane.Eventually(t, patience, func(context.Context) error {
			_, err := configMaps.ConfigMaps(ns).Get(late.Name)
			return err
		})
		controlplane.Consistently(t, 500*time.Millisecond, cached(0))
		freeze.Thaw()
		controlplane.Eventually(t, patience, cached(3))
		if n := proxy.Count("watch", "pods", 0); n != 1 {
			t.Errorf("%d pod watches, want the first one still open", n)
		}

		if n := proxy.CutWatches(faults.Watches("pods")); n != 1 {
			t.Errorf("cut %d pod watches, want 1", n)
		}
		if err := direct.CoreV1().Pods(ns).Delete(ctx, "p0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controlplane.Eventually(t, patience, cached(2)) // the informer has opened another
	})
}

func TestDroppedAnswers(t *testing.T) {
	encodings(t, func(t *testing.T, proxy *faults.Proxy, client kubernetes.Interface) {
		ns := cluster.Namespace(t)
		direct := cluster.Client(t)
		rule := proxy.Inject(faults.On(faults.Writes, "pods"), faults.DropAnswer())

		_, err := client.CoreV1().Pods(ns).Create(t.Context(), controlplane.Pod(ns, "p", nil), metav1.CreateOptions{})
		if err == nil {
			t.Error("create: client got an answer")
		}
		if _, err := direct.CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{}); err != nil {
			t.Errorf("get the pod whose answer was dropped: %v", err)
		}
		if err := client.CoreV1().Pods(ns).Delete(t.Context(), "p", metav1.DeleteOptions{}); err == nil {
			t.Error("delete: client got an answer")
		}
		if _, err := direct.CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get the pod whose deletion's answer was dropped: %v, want not found", err)
		}
		if rule.Hits() != 2 {
			t.Errorf("%d writes reached the proxy, want 2: client-go sent some again", rule.Hits())
		}
	})
}

func TestLateCommit(t *testing.T) {
	proxy := faults.New(t, cluster.Config())
	client := controlplane.ClientFor(t, proxy.Config())
	direct := cluster.Client(t)
	ns := cluster.Namespace(t)
	gate := faults.NewGate()
	proxy.Inject(faults.On("create", "pods"), faults.Hold(gate), faults.Next(1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	created := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Pods(ns).Create(ctx, controlplane.Pod(ns, "p", nil), metav1.CreateOptions{})
		created <- err
	}()
	held := gate.Next(t)
	cancel()
	if err := <-created; err == nil {
		t.Error("client got an answer")
	}
	if _, err := direct.CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the pod while its create is held: %v, want not found", err)
	}
	held.Release()
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		_, err := direct.CoreV1().Pods(ns).Get(ctx, "p", metav1.GetOptions{})
		return err
	})
}
