package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// TestEveryTypeHasExactlyOneStream checks promise 1 of the design. The audit log has an entry for each watch that is
// opened.
func TestEveryTypeHasExactlyOneStream(t *testing.T) {
	for _, tt := range []struct {
		controllers string
		elect       bool
		want        []string
	}{
		{"nodelifecycle", false, []string{"leases", "nodes", "pods"}},
		{"*,-garbagecollector", true, []string{"deployments", "endpointslices", "leases", "namespaces", "nodes", "pods", "replicasets", "services"}},
		{"*", true, []string{"deployments", "endpointslices", "leases", "namespaces", "nodes", "pods", "replicasets", "services", "configmaps", "clusterroles", "secrets"}},
		{"", false, nil},
	} {
		t.Run(fmt.Sprintf("controllers=%s elect=%v", tt.controllers, tt.elect), func(t *testing.T) {
			account := strings.NewReplacer("/", "-", "=", "-", "*", "all", ",", "", " ", "-", "#", "-").Replace(t.Name())
			user := controlplane.ServiceAccount(account)
			args := []string{"--kubeconfig=" + cluster.ManagerKubeconfig(t, account), "--secure-port=0",
				"--controllers=" + tt.controllers, fmt.Sprintf("--leader-elect=%v", tt.elect)}
			begun := time.Now()
			manager := controlplane.StartProcess(t, args...)
			manager.WaitForLog(t, "Term begins")
			controlplane.Eventually(t, 30*time.Second, func(context.Context) error {
				got := slices.Sorted(maps.Keys(streams(t, user, begun)))
				if tt.controllers == "*" { // the garbage collector watches more types
					if len(got) < 30 {
						return fmt.Errorf("only %d types are watched", len(got))
					}
					got = slices.DeleteFunc(got, func(resource string) bool { return !slices.Contains(tt.want, resource) })
				}
				if !slices.Equal(got, slices.Sorted(slices.Values(tt.want))) {
					return fmt.Errorf("watched types = %v, want %v", got, tt.want)
				}
				return nil
			})
			controlplane.Must(t, manager.Signal(syscall.SIGTERM))
			manager.EndsWith(t, 0)
			for resource, n := range streams(t, user, begun) {
				if n != 1 {
					t.Errorf("%s was watched %d times, want once", resource, n)
				}
			}
			lists := cluster.AuditLogSince(t, begun, controlplane.ByUser(user), controlplane.ByVerb("list"), controlplane.Completed)
			for _, e := range append(lists.Select(controlplane.ByUserAgent("shared-informers")), lists.Select(controlplane.ByUserAgent("feeds"))...) {
				t.Errorf("%s was listed as well as streamed", e.ObjectRef.Resource)
			}
		})
	}
}

// streams counts the watches that a user has opened since a moment, by resource.
func streams(t *testing.T, user string, since time.Time) map[string]int {
	t.Helper()
	opened := map[string]int{}
	for _, e := range cluster.AuditLogSince(t, since, controlplane.ByUser(user), controlplane.ByVerb("watch"), controlplane.Received) {
		opened[e.ObjectRef.Resource]++
	}
	return opened
}
