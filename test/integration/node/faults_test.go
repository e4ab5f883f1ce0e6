package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/node"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// unknown returns a check that exactly the named nodes are Unknown.
func (w *world) unknown(want ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: controlplane.ScopeLabel + "=" + w.scope})
		if err != nil {
			return err
		}
		var names []string
		for i := range nodes.Items {
			if controlplane.NodeReady(&nodes.Items[i]) == corev1.ConditionUnknown {
				names = append(names, nodes.Items[i].Name)
			}
		}
		if !slices.Equal(names, want) {
			return fmt.Errorf("of %d nodes %v are Unknown, want %v", len(nodes.Items), names, want)
		}
		return nil
	}
}

func TestAPIServerOutageKeepsNodesReady(t *testing.T) {
	t.Parallel()
	for _, outage := range []faults.Outage{faults.Refused, faults.Partition} {
		t.Run(fmt.Sprint("outage ", outage), func(t *testing.T) {
			w := newWorld(t)
			f := w.newFleet(10)
			proxy := faults.New(t, w.config(node.Name))
			watches := faults.New(t, w.config(node.Name), faults.WithName("watches"))
			w.start(scaled(), proxy.Config(), watches.Config(), node.Name)
			controlplane.Consistently(t, 2*time.Second, w.unknown())

			f.silence(f.names...)
			controlplane.Must(t, proxy.Outage(outage))
			controlplane.Must(t, watches.Outage(outage))
			controlplane.Consistently(t, scaled().MonitorGracePeriod+3*time.Second, w.unknown())
			controlplane.Must(t, proxy.Restore())
			controlplane.Must(t, watches.Restore())
			controlplane.Consistently(t, time.Second, w.unknown())
			for _, name := range f.names[1:] {
				f.silent.Delete(name)
			}
			controlplane.Consistently(t, 1*time.Second, w.unknown())
			controlplane.Eventually(t, patience, w.unknown(f.names[0]))
		})
	}
}
