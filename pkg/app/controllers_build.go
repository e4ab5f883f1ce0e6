package app

import (
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/replicaset"
	"minikcm/pkg/controllers/tainteviction"
)

func buildReplicaSet(cfg Config, s shared) (Controller, error) {
	client, _, err := s.client()
	if err != nil {
		return nil, err
	}
	pods, err := s.caches.Pods()
	if err != nil {
		return nil, err
	}
	sets, err := s.caches.ReplicaSets()
	if err != nil {
		return nil, err
	}
	namespaces, err := s.caches.Namespaces()
	if err != nil {
		return nil, err
	}
	return replicaset.New(replicaset.Config{
		Workers:             cfg.ReplicaSet.Workers,
		PodDeletionCost:     cfg.ReplicaSet.PodDeletionCost,
		TerminatingReplicas: cfg.ReplicaSet.ReportTerminatingReplicas,
		VerifyFirstWrite:    cfg.Promises.VerifyFirstWrite,
		Drain:               drain(cfg.Election.ShutdownTimeout),
	}, replicaset.Deps{
		Client: client, Pods: pods, ReplicaSets: sets, Namespaces: namespaces,
		Recorder: s.recorder(replicaset.Name), Clock: s.clock, Metrics: s.registry,
	})
}

// How much the loops of nodes and their pods do at once. Their work comes in bursts, when a node or a zone dies, and then the bound is on
// requests in flight: more than this does not make a small API server faster.
const (
	nodeWorkers = 8 // upstream's number for marking and tainting
	podWorkers  = 32
)

func buildNodeLifecycle(cfg Config, s shared) (Controller, error) {
	client, rc, err := s.client()
	if err != nil {
		return nil, err
	}
	rc = rest.CopyConfig(rc)
	rc.QPS, rc.RateLimiter = -1, nil // how long the answer takes tells whether kubelets get one, so it must not wait behind other requests of ours
	reads, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("build the client of live reads: %w", err)
	}
	nodes, pods, err := nodesAndPods(s.caches)
	if err != nil {
		return nil, err
	}
	leases, err := s.caches.Leases()
	if err != nil {
		return nil, err
	}
	return node.New(node.Config{
		MonitorPeriod:             cfg.NodeLifecycle.MonitorPeriod,
		MonitorGracePeriod:        cfg.NodeLifecycle.MonitorGracePeriod,
		StartupGracePeriod:        cfg.NodeLifecycle.StartupGracePeriod,
		EvictionRate:              cfg.NodeLifecycle.EvictionRate,
		SecondaryEvictionRate:     cfg.NodeLifecycle.SecondaryEvictionRate,
		LargeClusterSizeThreshold: cfg.NodeLifecycle.LargeClusterSizeThreshold,
		UnhealthyZoneThreshold:    cfg.NodeLifecycle.UnhealthyZoneThreshold,
		Workers:                   nodeWorkers,
		PodWorkers:                podWorkers,
		Drain:                     drain(cfg.Election.ShutdownTimeout),
	}, node.Deps{
		Client: client, Reads: reads, Nodes: nodes, Pods: pods, Leases: leases,
		Recorder: s.recorder(nodeAgent), Clock: s.clock, Metrics: s.registry,
	})
}

func buildTaintEviction(cfg Config, s shared) (Controller, error) {
	client, _, err := s.client()
	if err != nil {
		return nil, err
	}
	nodes, pods, err := nodesAndPods(s.caches)
	if err != nil {
		return nil, err
	}
	return tainteviction.New(tainteviction.Config{
		Workers:      podWorkers,
		SettleWindow: cfg.NodeLifecycle.MonitorGracePeriod,
		Drain:        drain(cfg.Election.ShutdownTimeout),
	}, tainteviction.Deps{
		Client: client, Pods: pods, Nodes: nodes,
		Recorder: s.recorder(tainteviction.Name), Clock: s.clock, Metrics: s.registry,
	})
}

func buildPodGC(cfg Config, s shared) (Controller, error) {
	client, _, err := s.client()
	if err != nil {
		return nil, err
	}
	nodes, pods, err := nodesAndPods(s.caches)
	if err != nil {
		return nil, err
	}
	return podgc.New(podgc.Config{
		TerminatedPodThreshold: cfg.PodGC.TerminatedPodThreshold,
		Quarantine:             podgc.DefaultQuarantine,
		Period:                 podgc.DefaultPeriod,
		Workers:                podWorkers,
		Drain:                  drain(cfg.Election.ShutdownTimeout),
	}, podgc.Deps{Client: client, Pods: pods, Nodes: nodes, Clock: s.clock, Metrics: s.registry})
}

func nodesAndPods(c *caches.Caches) (*caches.Nodes, *caches.Pods, error) {
	nodes, err := c.Nodes()
	if err != nil {
		return nil, nil, err
	}
	pods, err := c.Pods()
	return nodes, pods, err
}

func buildNamespace(cfg Config, s shared) (Controller, error) {
	client, rc, err := s.client()
	if err != nil {
		return nil, err
	}
	metadata, err := namespace.NewMetadataClient(rc)
	if err != nil {
		return nil, err
	}
	discovery, err := discovery.NewDiscoveryClientForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("build the discovery client: %w", err)
	}
	namespaces, err := s.caches.Namespaces()
	if err != nil {
		return nil, err
	}
	pods, err := s.caches.Pods()
	if err != nil {
		return nil, err
	}
	return namespace.New(namespace.Config{
		Workers:    cfg.Namespace.Workers,
		SyncPeriod: cfg.Namespace.SyncPeriod,
		Grace:      cfg.Namespace.DeletionGracePeriod,
		Drain:      drain(cfg.Election.ShutdownTimeout),
	}, namespace.Deps{
		Client: client, Metadata: metadata, Discovery: discovery, Namespaces: namespaces, Pods: pods, APIServers: s.apiServers,
		Recorder: s.recorder(namespace.Name), Clock: s.clock, Metrics: s.registry,
	})
}

// drain is how long syncs may go on after the end of a term before their own loops cancel them: longer than the elector waits. So it is the
// elector that cuts a write which is not answered, and knows that the API server may still do it; had the loop cancelled it, the lease would
// seem free to be released. Zero is no limit for both.
func drain(shutdown time.Duration) time.Duration {
	if shutdown == 0 {
		return 0
	}
	return shutdown + time.Second
}
