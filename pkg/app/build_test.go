package app

import (
	"slices"
	"testing"
	"time"
)

func TestLeasesAreWatchedWhereSomebodyReadsThem(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"kube-system", "kube-node-lease"}},
		{[]string{"--controllers=replicaset"}, []string{"kube-system"}},
		{[]string{"--leader-elect=false"}, []string{"kube-node-lease"}},
		{[]string{"--leader-elect=false", "--controllers=replicaset"}, nil},
		{[]string{"--leader-elect-resource-namespace=kube-node-lease"}, []string{"kube-node-lease"}},
	} {
		cfg, err := parsed(t, append(tt.args, "--kubeconfig="+minimalKubeconfig(t))...).Complete()
		if err != nil {
			t.Fatal(err)
		}
		if got := leaseNamespaces(cfg); !slices.Equal(got, tt.want) {
			t.Errorf("with %q Leases of %q are watched, want %q", tt.args, got, tt.want)
		}
	}
}

// Whoever cuts a write that is not answered decides whether the lease may be released.
func TestLoopsOutlastTheElectorsPatience(t *testing.T) {
	for shutdown, want := range map[time.Duration]time.Duration{0: 0, time.Nanosecond: time.Second + 1, 10 * time.Second: 11 * time.Second} {
		if got := drain(shutdown); got != want {
			t.Errorf("drain(%v) = %v, want %v", shutdown, got, want)
		}
	}
}
