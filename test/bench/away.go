package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/faults"
)

const (
	heldNamespaces = 20
	// heldFor is the age of the deletions of namespaces when the API server goes away. Our namespace controller waits
	// 35 s with namespaces that seem empty, which is less than heldFor and lagOutage together.
	heldFor   = 25 * time.Second
	lagOutage = 20 * time.Second
	// afterLag is the time for finalizations that come late, after discovery is complete.
	afterLag = 15 * time.Second

	awayTypes    = 300
	awayOutage   = 30 * time.Second
	watchesQuiet = 5 * time.Second
)

var (
	heldGone     = metric{"finalizers removed to last namespace gone", "s"}
	awayDials    = metric{"connection attempts while away", "1/s"}
	watchesAgain = metric{"return to all custom types watched", "s"}
	relists      = metric{"lists after the return", ""}
)

var lags = []time.Duration{time.Second, 5 * time.Second}

// finalizedEarly is a metric of discovery-lag.
func finalizedEarly(lag time.Duration) metric {
	return metric{fmt.Sprintf("namespaces finalized early, discovery %g s late", lag.Seconds()), ""}
}

// interpose starts a proxy between the API server and managers that are started as managerUser from now on.
func (r *rig) interpose() (*faults.Proxy, error) {
	proxy, err := faults.Start(r.cluster.ConfigFor(managerUser, "system:masters"))
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	r.proxy = proxy
	return proxy, nil
}

// measureDiscoveryLag takes the API server away until leases are lost. After the return, discovery lacks the type of
// the objects that hold Terminating namespaces.
func measureDiscoveryLag(ctx context.Context, r *rig, c contestant) (readings []reading, err error) {
	holder, err := r.define(ctx, "holders")
	if err != nil {
		return nil, err
	}
	proxy, err := r.interpose()
	if err != nil {
		return nil, err
	}
	m, err := r.launchWorking(ctx, c, "--leader-elect=true")
	if err != nil {
		return nil, err
	}
	m.expected.Store(true)
	for _, lag := range lags {
		early, gone, err := r.restartLate(ctx, c, proxy, holder, lag)
		if err != nil {
			return nil, err
		}
		readings = append(readings, reading{finalizedEarly(lag), early}, reading{heldGone, gone})
	}
	return readings, nil
}

// restartLate returns the number of namespaces that were finalized early, and the seconds from the removal of all
// finalizers of objects to the end of the last namespace.
func (r *rig) restartLate(ctx context.Context, c contestant, proxy *faults.Proxy, holder custom, lag time.Duration) (early, gone float64, err error) {
	objects, err := r.resource(holder)
	if err != nil {
		return 0, 0, err
	}
	object := holder.object("object")
	object.SetFinalizers([]string{customGroup + "/hold"})
	names, err := r.createNamespaces(ctx, "held-"+lag.String(), heldNamespaces, func(ctx context.Context, namespace string) error {
		if _, err := objects.Namespace(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create object: %w", err)
		}
		return r.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	})
	if err != nil {
		return 0, 0, err
	}
	if err := errors.Join(r.keepUp(ctx, c, heldFor), proxy.Outage(faults.Refused), r.keepUp(ctx, c, lagOutage)); err != nil {
		return 0, 0, err
	}
	discovery := func(q *http.Request) bool { return strings.TrimSuffix(q.URL.Path, "/") == "/apis" }
	proxy.Inject(faults.Match{When: discovery}, faults.HideGroup(customGroup))
	proxy.Inject(faults.Match{PathPrefix: "/apis/" + customGroup}, faults.Refuse(http.StatusServiceUnavailable))
	proxy.Inject(faults.Match{PathPrefix: "/readyz"}, faults.Refuse(http.StatusInternalServerError))
	proxy.Inject(faults.Match{PathPrefix: "/healthz"}, faults.Refuse(http.StatusInternalServerError))
	if err := errors.Join(proxy.Restore(), r.keepUp(ctx, c, lag)); err != nil {
		return 0, 0, err
	}
	proxy.Clear()
	if err := r.keepUp(ctx, c, afterLag); err != nil {
		return 0, 0, err
	}
	left, err := r.remaining(ctx, names)
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	for _, name := range names {
		if _, err := objects.Namespace(name).Patch(ctx, object.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			return 0, 0, fmt.Errorf("remove finalizer: %w", err)
		}
	}
	err = poll(ctx, statusPeriod, func() (bool, error) {
		left, err := r.remaining(ctx, names)
		return left == 0, err
	})
	return float64(len(names) - left), time.Since(begin).Seconds(), err
}

// remaining counts the namespaces that exist.
func (r *rig) remaining(ctx context.Context, names []string) (left int, err error) {
	for _, name := range names {
		_, err := r.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			left++
		case !apierrors.IsNotFound(err):
			return 0, fmt.Errorf("get namespace: %w", err)
		}
	}
	return left, nil
}

func (r *rig) keepUp(ctx context.Context, c contestant, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case <-r.managers[len(r.managers)-1].Done():
			m, err := r.launch(c, managerUser, "--leader-elect=true")
			if err != nil {
				return err
			}
			m.expected.Store(true)
		default:
		}
		if err := pause(ctx, min(time.Second, max(0, time.Until(end)))); err != nil {
			return err
		}
	}
	return nil
}

// defineMany defines n custom types.
func (r *rig) defineMany(ctx context.Context, n int) error {
	return inParallel(ctx, writers, n, func(ctx context.Context, i int) error {
		_, err := r.define(ctx, fmt.Sprintf("things%d", i))
		return err
	})
}

func manyTypes(n int) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return r.defineMany(ctx, n) }
}

// measureAway counts the connection attempts of a manager with many watches while the API server refuses connections.
func measureAway(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	proxy, err := r.interpose()
	if err != nil {
		return nil, err
	}
	if _, err := r.launchWorking(ctx, c); err != nil {
		return nil, err
	}
	custom := faults.Watches()
	custom.PathPrefix = "/apis/" + customGroup
	watched, since := 0, time.Now()
	if err := poll(ctx, statusPeriod, func() (bool, error) {
		if open := proxy.OpenWatches(custom); open != watched {
			watched, since = open, time.Now()
		}
		return watched >= awayTypes && time.Since(since) >= watchesQuiet, nil
	}); err != nil {
		return nil, err
	}
	before, err := refusedDials()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(proxy.Outage(faults.Refused), pause(ctx, awayOutage)); err != nil {
		return nil, err
	}
	after, err := refusedDials()
	if err != nil {
		return nil, err
	}
	seen := len(proxy.Requests())
	back := time.Now()
	if err := proxy.Restore(); err != nil {
		return nil, err
	}
	if err := poll(ctx, statusPeriod, func() (bool, error) { return proxy.OpenWatches(custom) >= watched, nil }); err != nil {
		return nil, err
	}
	resumed := time.Since(back)
	lists := 0.
	for _, q := range proxy.Requests()[seen:] {
		whole := q.Verb == "list" && !strings.Contains(q.Query, "limit=1&") && !strings.HasSuffix(q.Query, "limit=1")
		if whole || strings.Contains(q.Query, "sendInitialEvents=true") {
			lists++
		}
	}
	return []reading{
		{awayDials, float64(after-before) / awayOutage.Seconds()}, {watchesAgain, resumed.Seconds()}, {relists, lists},
	}, nil
}

// refusedDials is the number of connection attempts on this machine that have failed. During an outage only the manager
// dials a port without a listener.
func refusedDials() (int, error) {
	text, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return 0, fmt.Errorf("read counters of the network: %w", err)
	}
	return attemptFails(string(text))
}

// attemptFails reads the counter from the two lines about TCP, of names and of values.
func attemptFails(text string) (int, error) {
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names {
			if name == "AttemptFails" && i < len(words) {
				return strconv.Atoi(words[i])
			}
		}
	}
	return 0, errors.New("no AttemptFails among the counters of the network")
}
