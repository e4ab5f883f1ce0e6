package node

import (
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"minikcm/pkg/controller"
	"minikcm/pkg/flagcheck"
)

// agent is the name of upstream for the loops of nodes in user agents and in the source of events.
const agent = "node-controller"

// Config is the configuration of the controller.
type Config struct {
	MonitorPeriod      time.Duration `json:"NodeMonitorPeriod"`      // minimum time between two checks of one node
	MonitorGracePeriod time.Duration `json:"NodeMonitorGracePeriod"` // longest silence of a live node
	StartupGracePeriod time.Duration `json:"NodeStartupGracePeriod"` // the same without a Ready condition

	EvictionRate              float32 `json:"NodeEvictionRate"`          // NoExecute taints per second and zone
	SecondaryEvictionRate     float32 `json:"SecondaryNodeEvictionRate"` // of a large zone in PartialDisruption
	LargeClusterSizeThreshold int     `json:"LargeClusterSizeThreshold"` // number of nodes above which a zone is large
	UnhealthyZoneThreshold    float32 `json:"UnhealthyZoneThreshold"`    // share of not Ready nodes in a disrupted zone
}

// DefaultConfig returns the defaults of kube-controller-manager v1.37.
func DefaultConfig() *Config {
	return &Config{
		MonitorPeriod:             5 * time.Second,
		MonitorGracePeriod:        50 * time.Second,
		StartupGracePeriod:        time.Minute,
		EvictionRate:              0.1,
		SecondaryEvictionRate:     0.01,
		LargeClusterSizeThreshold: 50,
		UnhealthyZoneThreshold:    0.55,
	}
}

// AddFlags implements controller.Config.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.MonitorPeriod, "node-monitor-period", c.MonitorPeriod,
		"Minimum time between two checks of the same node's health.")
	fs.DurationVar(&c.MonitorGracePeriod, "node-monitor-grace-period", c.MonitorGracePeriod,
		"A node whose kubelet has been silent for this long becomes Unknown. Should be several times the kubelet's heartbeat period.")
	fs.DurationVar(&c.StartupGracePeriod, "node-startup-grace-period", c.StartupGracePeriod,
		"Like --node-monitor-grace-period, for a node that has not reported a Ready condition yet.")
	fs.Float32Var(&c.EvictionRate, "node-eviction-rate", c.EvictionRate,
		"Nodes per second and zone that are tainted NoExecute, in a zone that is healthy or has no Ready node at all.")
	fs.Float32Var(&c.SecondaryEvictionRate, "secondary-node-eviction-rate", c.SecondaryEvictionRate,
		"Nodes per second and zone that are tainted NoExecute in an unhealthy zone of more than --large-cluster-size-threshold nodes.")
	fs.IntVar(&c.LargeClusterSizeThreshold, "large-cluster-size-threshold", c.LargeClusterSizeThreshold,
		"Zones with more nodes than this use --secondary-node-eviction-rate while unhealthy; "+
			"in smaller zones no further node is tainted NoExecute. Negative: no zone is small.")
	fs.Float32Var(&c.UnhealthyZoneThreshold, "unhealthy-zone-threshold", c.UnhealthyZoneThreshold,
		"Share of nodes not Ready, at least three of them, from which a zone counts as unhealthy. 0 or less: three are enough. Above 1: no zone does.")
}

// Validate implements controller.Config.
func (c *Config) Validate() []error {
	var p flagcheck.Problems
	p.Positive("node-monitor-period", c.MonitorPeriod)
	p.Positive("node-monitor-grace-period", c.MonitorGracePeriod)
	p.Positive("node-startup-grace-period", c.StartupGracePeriod)
	p.Rate("node-eviction-rate", c.EvictionRate)
	p.Rate("secondary-node-eviction-rate", c.SecondaryEvictionRate)
	// Upstream accepts any number, and a value above 1 disables the state.
	if math.IsNaN(float64(c.UnhealthyZoneThreshold)) {
		p.Addf("unhealthy-zone-threshold", "%v is not a number", c.UnhealthyZoneThreshold)
	}
	return p
}

// Registration returns the registration of the controller. Flags are bound to cfg.
func Registration(cfg *Config) controller.Registration {
	return controller.Registration{
		Name: Name, Alias: "nodelifecycle", Agent: agent,
		LeaseNamespaces: []string{corev1.NamespaceNodeLease},
		Config:          cfg, Section: "NodeLifecycleController",
		WatchPermissions: []controller.Access{{Resource: "nodes"}, {Resource: "pods"}},
		Permissions: []controller.Access{
			{Resource: "nodes", Verbs: []string{"get"}, Impact: "cannot find a silent node"},
			{Resource: "nodes", Verbs: []string{"list"}, Impact: "cannot taint a node NoExecute"},
			{Resource: "nodes", Verbs: []string{"patch"}, Impact: "cannot taint nodes"},
			{Resource: "nodes/status", Verbs: []string{"update"}, Impact: "cannot find a silent node"},
			{Resource: "pods/status", Verbs: []string{"patch"}, Impact: "cannot take the pods of a silent node out of their Services"},
			{Group: "coordination.k8s.io", Resource: "leases", Namespace: corev1.NamespaceNodeLease, Verbs: []string{"get", "list"}, Impact: "cannot find a silent node"},
		},
		New: func(b controller.Base) (controller.Controller, error) {
			unlimited := rest.CopyConfig(b.REST) // live reads must not wait for the rate limiter
			unlimited.QPS, unlimited.RateLimiter = -1, nil
			reads, err := kubernetes.NewForConfig(unlimited)
			if err != nil {
				return nil, fmt.Errorf("build the client of live reads: %w", err)
			}
			metadata, err := metadata.NewForConfig(unlimited)
			if err != nil {
				return nil, fmt.Errorf("build the client of nodes' metadata: %w", err)
			}
			return newController(*cfg, b, reads, metadata)
		},
	}
}
