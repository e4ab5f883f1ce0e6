package namespace_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
)

func atOnce(n, limit int, f func(i int)) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wait.Wait()
}

func namespaceKnown(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	return err
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		count, objects int
		wait, want     time.Duration
	}{
		{"100 empty, grace 5 s", 100, 0, 5 * time.Second, 8 * time.Second},
		{"10 of 30 objects, no grace", 10, 30, 0, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := start(t, grace(tt.wait))
			names := make([]string, tt.count)
			atOnce(tt.count, 8, func(i int) {
				names[i] = create(t)
				fill(t, cluster.Client(t), names[i], tt.objects)
			})
			begin := time.Now()
			atOnce(tt.count, 8, func(i int) { remove(t, names[i]) })
			for _, name := range names {
				gone(t, name, 2*time.Minute)
			}
			took := time.Since(begin)
			m.Stop()
			sent := m.requests(t)
			discoveries := len(sent.Select(func(e *auditv1.Event) bool { return strings.HasPrefix(e.RequestURI, "/apis?") }))
			t.Logf("gone after %v (hoped for %v), %.1f requests each, %d discoveries", took.Round(time.Millisecond), tt.want, float64(len(sent))/float64(tt.count), discoveries)
			if tt.objects == 0 && len(sent) > 40*tt.count {
				t.Errorf("%d requests for %d empty namespaces", len(sent), tt.count)
			}
			if discoveries > tt.count/2+int(took/(10*time.Second)) {
				t.Errorf("%d discoveries for %d namespaces", discoveries, tt.count)
			}
			if conflicts := cluster.AuditLog(t, controlplane.ByUserAgent(m.agent), controlplane.ByCode(409)); len(conflicts) > 0 {
				t.Errorf("%d conflicts", len(conflicts))
			}
		})
	}
}

// TestCreatesDuringDeletionLeaveNoOrphans creates objects in terminating namespaces, with one API server and no grace.
func TestCreatesDuringDeletionLeaveNoOrphans(t *testing.T) {
	t.Parallel()
	const namespaces, creators = 40, 10
	client := cluster.Client(t)
	start(t)
	var admitted, refused atomic.Int32
	names := make([]string, namespaces)
	atOnce(namespaces, 8, func(n int) {
		names[n] = create(t)
		var wait sync.WaitGroup
		begin := make(chan struct{})
		for i := range creators {
			wait.Go(func() {
				<-begin
				_, err := client.CoreV1().ConfigMaps(names[n]).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("racer-", i)}}, metav1.CreateOptions{})
				if err == nil {
					admitted.Add(1)
				} else {
					refused.Add(1)
				}
			})
		}
		wait.Go(func() {
			<-begin
			remove(t, names[n])
		})
		close(begin)
		wait.Wait()
	})
	for _, name := range names {
		gone(t, name, 30*time.Second)
	}
	all, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	check(t, err)
	for _, o := range all.Items {
		if slices.Contains(names, o.Namespace) {
			t.Errorf("orphan %s/%s", o.Namespace, o.Name)
		}
	}
	t.Logf("%d creates admitted, %d refused", admitted.Load(), refused.Load())
}
