package app

import (
	"fmt"

	"k8s.io/client-go/discovery"

	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/controllers/replicaset"
)

// The rights of each controller: what it watches and what it writes. They are no more than those of the upstream role of the same
// name, and what deploy/ grants.
var (
	replicaSetNeeds = []access{
		{group: "apps", resource: "replicasets", verbs: []string{"get", "list", "watch"}},
		{group: "apps", resource: "replicasets/status", verbs: []string{"update"}},
		{group: "apps", resource: "replicasets/finalizers", verbs: []string{"update"}}, // to set blockOwnerDeletion
		{resource: "pods", verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{resource: "namespaces", verbs: []string{"list", "watch"}},
	}
	namespaceNeeds = []access{
		{resource: "namespaces", verbs: []string{"get", "list", "watch"}},
		{resource: "namespaces/status", verbs: []string{"update"}},
		{resource: "namespaces/finalize", verbs: []string{"update"}},
		{resource: "pods", verbs: []string{"list", "watch"}},
		{group: "*", resource: "*", verbs: []string{"list", "delete", "deletecollection"}},
		{nonResource: "/api", verbs: []string{"get"}},
		{nonResource: "/apis", verbs: []string{"get"}},
	}
)

func buildReplicaSet(cfg Config, s shared) (Controller, error) {
	client, _, err := s.client(replicaset.Name)
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
		Drain:               cfg.Election.ShutdownTimeout,
	}, replicaset.Deps{
		Client: client, Pods: pods, ReplicaSets: sets, Namespaces: namespaces,
		Recorder: s.recorder(replicaset.Name), Clock: s.clock, Metrics: s.registry,
	})
}

func buildNamespace(cfg Config, s shared) (Controller, error) {
	client, rc, err := s.client(namespace.Name)
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
		Drain:      cfg.Election.ShutdownTimeout,
	}, namespace.Deps{
		Client: client, Metadata: metadata, Discovery: discovery, Namespaces: namespaces, Pods: pods, APIServers: s.apiServers,
		Recorder: s.recorder(namespace.Name), Clock: s.clock, Metrics: s.registry,
	})
}
