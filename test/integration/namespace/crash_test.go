package namespace_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
)

// A namespace with something of everything: a pod, objects that go at once, and one held until the test lets it go.
func eventful(t *testing.T) string {
	t.Helper()
	client := cluster.Client(t)
	ns := create(t)
	pod(t, client, ns, "pod")
	fill(t, client, ns, 6)
	_, err := client.AppsV1().ReplicaSets(ns).Create(t.Context(), controlplane.ReplicaSet(ns, "held", 0, func(rs *appsv1.ReplicaSet) {
		rs.Finalizers = []string{"example.com/hold"}
	}), metav1.CreateOptions{})
	check(t, err)
	return ns
}

// letGo removes the finalizer once the object is being deleted, as its controller would.
func letGo(ctx context.Context, t *testing.T, ns string) {
	client := cluster.Client(t)
	for ctx.Err() == nil {
		rs, err := client.AppsV1().ReplicaSets(ns).Get(ctx, "held", metav1.GetOptions{})
		if err == nil && rs.DeletionTimestamp != nil {
			_, err = client.AppsV1().ReplicaSets(ns).Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		if apierrors.IsNotFound(err) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Requests fail, or lose their responses, at random.
func TestFaultyRequestsConverge(t *testing.T) {
	t.Parallel()
	var lock sync.Mutex
	random := rand.New(rand.NewPCG(1, 0))
	faulty := func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			lock.Lock()
			dice := random.Float64()
			lock.Unlock()
			if dice < .05 {
				return nil, fmt.Errorf("not sent")
			}
			resp, err := next.RoundTrip(req)
			if err == nil && dice < .1 && req.URL.Query().Get("watch") == "" {
				_ = resp.Body.Close()
				return nil, fmt.Errorf("answer lost")
			}
			return resp, err
		})
	}
	m := start(t, func(s *setup) { s.transport = faulty })
	var names []string
	for range 10 {
		names = append(names, eventful(t))
	}
	for _, ns := range names {
		remove(t, ns)
		go letGo(t.Context(), t, ns)
	}
	for _, ns := range names {
		gone(t, ns, 60*time.Second)
		podsFirst(t, m, ns, time.Time{})
		if left := leftovers(t, ns); len(left) > 0 {
			t.Errorf("orphans %v", left)
		}
	}
}
