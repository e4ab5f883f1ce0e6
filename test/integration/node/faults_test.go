package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"minikcm/pkg/controllers/node"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// nobodyUnknown is a check that no node is Unknown.
func (w *world) nobodyUnknown(ctx context.Context) error {
	nodes, err := w.list(ctx)
	if err != nil {
		return err
	}
	if names := unknown(nodes); len(names) > 0 {
		return fmt.Errorf("%d of %d nodes are Unknown: %v", len(names), len(nodes), names)
	}
	return nil
}

// onlyUnknown waits until exactly the named node is Unknown.
func (w *world) onlyUnknown(name string) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		nodes, err := w.list(ctx)
		if err != nil {
			return err
		}
		if names := unknown(nodes); len(names) != 1 || names[0] != name {
			return fmt.Errorf("Unknown are %v, want %s", names, name)
		}
		return nil
	})
}

func TestAPIServerAwayCondemnsNobody(t *testing.T) {
	t.Parallel()
	for _, outage := range []faults.Outage{faults.Refused, faults.Partition} {
		t.Run(fmt.Sprint("outage ", outage), func(t *testing.T) {
			w := newWorld(t)
			f := w.newFleet("a", 10)
			proxy := faults.New(t, w.config(node.Name))
			watches := faults.New(t, w.config(node.Name), faults.WithName("watches"))
			w.start(scaled(), proxy.Config(), watches.Config(), node.Name)
			controlplane.Consistently(t, 2*time.Second, w.nobodyUnknown)

			f.silence(f.names...)
			controlplane.Must(t, proxy.Outage(outage))
			controlplane.Must(t, watches.Outage(outage))
			controlplane.Consistently(t, scaled().MonitorGracePeriod+3*time.Second, w.nobodyUnknown)
			controlplane.Must(t, proxy.Restore())
			controlplane.Must(t, watches.Restore())
			controlplane.Consistently(t, time.Second, w.nobodyUnknown)
			for _, name := range f.names[1:] {
				f.silent.Delete(name)
			}
			controlplane.Consistently(t, 1*time.Second, w.nobodyUnknown)
			w.onlyUnknown(f.names[0])
		})
	}
}
