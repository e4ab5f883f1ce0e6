package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
	"minikcm/test/must"
)

const (
	oneNamespace, allNamespaces = "1 of 30 objects", "29 of 30 objects"

	heldNamespaces = 20
	// heldFor is the age of the deletions when the API server goes away. It exceeds the grace period.
	heldFor   = 25 * time.Second
	lagOutage = 20 * time.Second
	// afterLag is the time for finalizations that come late, after discovery is complete.
	afterLag = 15 * time.Second
)

var discoveryLags = []time.Duration{time.Second, 5 * time.Second}

func measureNamespaces(ctx context.Context, r *rig, c contestant) (readings []reading) {
	m := r.launchWorking(ctx, c)
	for _, n := range []int{1, 29} {
		names := r.createNamespaces(ctx, fmt.Sprint("full-", n), n, r.fillNamespace)
		must.Pause(ctx, settleTime)
		namespaces := r.watchFromNow(ctx, &corev1.NamespaceList{}, "")
		cost := r.measureEffort(m, func() (end time.Time) {
			group, ctx := errgroup.WithContext(ctx)
			group.Go(func() error { return must.Catch(func() { end = awaitEvents(ctx, namespaces, watch.Deleted, n) }) })
			group.Go(func() error { return must.Catch(func() { r.deleteNamespaces(ctx, names) }) })
			must.Succeed(group.Wait())
			return end
		})
		readings = append(readings, reading{fmt.Sprintf("%d of 30 objects", n), "s", cost.wall})
	}
	return readings
}

func (r *rig) deleteNamespaces(ctx context.Context, names []string) {
	must.ForEach(ctx, writers, len(names), func(ctx context.Context, i int) {
		must.Succeed(r.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}))
	})
}

func (r *rig) createNamespaces(ctx context.Context, prefix string, n int, fill func(context.Context, string)) []string {
	names := make([]string, n)
	must.ForEach(ctx, writers, n, func(ctx context.Context, i int) {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
		r.createNamespace(ctx, names[i])
		fill(ctx, names[i])
	})
	return names
}

// fillNamespace makes 30 objects of five types, six of each.
func (r *rig) fillNamespace(ctx context.Context, namespace string) {
	for i := range 6 {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("object-%d", i)}
		for _, o := range []client.Object{
			controlplane.Pod(namespace, meta.Name, nil), &corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta},
			&corev1.ServiceAccount{ObjectMeta: meta}, &rbacv1.Role{ObjectMeta: meta},
		} {
			r.create(ctx, o)
		}
	}
}

func earlyMetric(lag time.Duration) string {
	return fmt.Sprintf("namespaces finalized early, discovery %g s late", lag.Seconds())
}

// measureDiscoveryLag takes the API server away until leases are lost. After the return, discovery lacks the type of
// the objects that hold Terminating namespaces.
func measureDiscoveryLag(ctx context.Context, r *rig, c contestant) (readings []reading) {
	r.defineType(ctx, "holders")
	proxy := r.startProxy()
	r.launchWorking(ctx, c, "--leader-elect=true").expected.Store(true)
	for _, lag := range discoveryLags {
		names := r.createNamespaces(ctx, "held-"+lag.String(), heldNamespaces, func(ctx context.Context, namespace string) {
			held := customObject("holders", metav1.ObjectMeta{Namespace: namespace, Name: "object", Finalizers: []string{customGroup + "/hold"}})
			r.create(ctx, held)
		})
		r.deleteNamespaces(ctx, names)
		r.keepUp(ctx, c, heldFor)
		must.Succeed(proxy.Outage(faults.Refused))
		r.keepUp(ctx, c, lagOutage)
		proxy.Inject(faults.Match{When: func(q *http.Request) bool { return strings.TrimSuffix(q.URL.Path, "/") == "/apis" }}, faults.HideGroup(customGroup))
		proxy.Inject(faults.Match{PathPrefix: "/apis/" + customGroup}, faults.Refuse(http.StatusServiceUnavailable))
		proxy.Inject(faults.Match{PathPrefix: "/readyz"}, faults.Refuse(http.StatusInternalServerError))
		proxy.Inject(faults.Match{PathPrefix: "/healthz"}, faults.Refuse(http.StatusInternalServerError))
		must.Succeed(proxy.Restore())
		r.keepUp(ctx, c, lag)
		proxy.Clear()
		r.keepUp(ctx, c, afterLag)
		early := 0
		for _, name := range names {
			err := r.client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
			if apierrors.IsNotFound(err) {
				early++
			} else {
				must.Succeed(err)
			}
		}
		readings = append(readings, reading{earlyMetric(lag), "", float64(early)})
	}
	return readings
}

// keepUp starts a manager again that ended because the lease was lost.
func (r *rig) keepUp(ctx context.Context, c contestant, d time.Duration) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, errPeriodOver)
	defer cancel()
	for {
		select {
		case <-r.managers[len(r.managers)-1].Done():
			r.launch(c, managerUser, "--leader-elect=true").expected.Store(true)
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errPeriodOver) {
				must.Succeed(cause)
			}
			return
		}
	}
}

var errPeriodOver = errors.New("period is over")
