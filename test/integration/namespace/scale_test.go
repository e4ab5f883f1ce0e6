package namespace_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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
