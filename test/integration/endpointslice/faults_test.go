package endpointslice

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/endpointslice"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// startProcess starts the manager without a lease, so that the next may work at once.
func startProcess(t *testing.T, name string) (*controlplane.Process, *faults.Proxy) {
	t.Helper()
	proxy := faults.New(t, cluster.ManagerConfig("manager", endpointslice.Name), faults.WithName(name))
	return controlplane.StartProcess(t, "--kubeconfig="+cluster.KubeconfigFor(t, proxy.Config()), "--controllers="+endpointslice.Name,
		"--leader-elect=false", "--secure-port=0", "-v=2", fmt.Sprint("--max-endpoints-per-slice=", maxEndpoints), "--concurrent-service-endpoint-syncs=50"), proxy
}

// The manager is killed at each write of a Service with three slices, before the API server receives the write or
// after that. Another manager goes on.
func TestKilledAtEachWrite(t *testing.T) {
	for name, fault := range map[string]func(*faults.Gate) faults.Fault{"Committed": faults.HoldAnswer, "Lost": faults.Hold} {
		t.Run(name, func(t *testing.T) {
			first, proxy := startProcess(t, "first")
			type victim struct {
				*world
				held     *faults.Held
				from, to int // pods in the end
			}
			var victims []victim
			for _, verb := range []string{"create", "update", "delete"} {
				for i := range map[string]int{"create": 3, "update": 1, "delete": 1}[verb] {
					w := newWorld(t)
					gate := faults.NewGate()
					hold := func() {
						proxy.Inject(faults.Match{Verbs: verb, Resource: "endpointslices", Namespace: w.ns}, fault(gate), faults.After(i), faults.Next(1))
					}
					v := victim{world: w, from: 1, to: 7}
					w.pods("web", 1, 7)
					if verb == "create" {
						hold()
					}
					w.service("web")
					if verb != "create" {
						w.gets("web", 1, 7)
					}
					switch verb {
					case "update": // some slice loses a pod
						hold()
						v.from = 2
						w.remove("web", 1, 1)
					case "delete": // the slices of all pods but one go
						hold()
						v.from = 7
						w.remove("web", 1, 6)
					}
					v.held = gate.Next(t)
					w.watchTwins("web", 4)
					victims = append(victims, v)
				}
			}
			controlplane.Must(t, first.Kill())
			for _, v := range victims {
				v.held.Cut()
			}
			startProcess(t, "second")
			for _, v := range victims {
				v.gets("web", v.from, v.to)
			}
		})
	}
}

// failed waits for an event about the Service with a text.
func (w *world) failed(service, text string) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		events, err := w.client.CoreV1().Events(w.ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedToUpdateEndpointSlices,involvedObject.name=" + service})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "Service" && e.Source.Component == "endpoint-slice-controller" && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("no event with %q in %d events", text, len(events.Items))
	})
}

// A webhook rejects slices, then hangs.
func TestWebhook(t *testing.T) {
	start(t, "manager")
	w := newWorld(t)
	hook := cluster.Webhook(t, controlplane.Webhook{APIGroup: "discovery.k8s.io", Resource: "endpointslices", Namespace: w.ns})
	hook.Deny("not today")
	w.service("web")
	w.pods("web", 1, 2)
	w.failed("web", "not today")
	hook.Delay(2 * time.Second)
	w.gets("web", 1, 2)
}

// The API server accepts pods with addresses that it rejects in slices. The Service gets its other endpoints once
// such a pod is gone.
func TestPodWithLoopbackAddress(t *testing.T) {
	start(t, "manager")
	w := newWorld(t)
	w.service("web")
	w.pods("web", 1, 3)
	w.setReady("web-3", "127.0.0.1")
	w.failed("web", "127.0.0.1")
	w.remove("web", 3, 3)
	w.gets("web", 1, 2)
}

// Creates in a terminating namespace are rejected, which is no failure.
func TestTerminatingNamespace(t *testing.T) {
	start(t, "manager")
	w := newWorld(t)
	w.service("web")
	w.pods("web", 1, 1)
	w.gets("web", 1, 1)
	controlplane.Must(t, w.client.CoreV1().Namespaces().Delete(t.Context(), w.ns, metav1.DeleteOptions{}))
	all, err := w.slices(t.Context(), "web")
	controlplane.Must(t, err)
	begin := time.Now()
	controlplane.Must(t, w.client.DiscoveryV1().EndpointSlices(w.ns).Delete(t.Context(), all[0].Name, metav1.DeleteOptions{}))
	var creates controlplane.AuditEvents
	controlplane.Consistently(t, 5*time.Second, func(ctx context.Context) error { // longer than the first retries
		creates = cluster.AuditLogSince(t, begin, controlplane.Completed, controlplane.ByResource("endpointslices"), controlplane.ByVerb("create"), controlplane.ByNamespace(w.ns))
		events, err := w.client.CoreV1().Events(w.ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedToUpdateEndpointSlices"})
		if err != nil || len(events.Items) > 0 || len(creates) > 1 {
			return fmt.Errorf("%d creates, events %v, error %v", len(creates), events, err)
		}
		return nil
	})
	if len(creates) != 1 || creates[0].ResponseStatus.Code != 403 {
		t.Errorf("creates %s, want one that is rejected", creates)
	}
}
