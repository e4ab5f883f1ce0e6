package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/replicaset"
	"minikcm/pkg/controllers/tainteviction"
)

// Controller is one control loop.
type Controller interface {
	// Run works for one term: it enqueues every key, then blocks until ctx is cancelled and every goroutine it started
	// has returned. It is called again for the next term. A non-nil error stops the process; errors about one object are
	// retried inside and never returned.
	Run(ctx context.Context) error
	// Healthy returns an error that says what stands still, if something does. It may be called at any time.
	Healthy() error
}

// shared is what controllers are built from. It stays inside this package: each line of the list hands a controller only
// its own parts.
type shared struct {
	// client returns a fenced client with the controller's user agent, and the configuration it was built from.
	client   func() (kubernetes.Interface, *rest.Config, error)
	caches   *caches.Caches
	recorder func(component string) record.EventRecorder
	registry prometheus.Registerer
	clock    clock.WithTicker
	// apiServers counts the API servers that are known by their Leases; nil if nobody watches those.
	apiServers func() int
}

// nodeAgent is what upstream calls the loops of nodes in user agents and as the source of their events.
const nodeAgent = "node-controller"

// descriptor is one line of the list of controllers.
type descriptor struct {
	name  string // canonical: users write it into manifests; upstream's, never changed
	alias string // accepted by --controllers for the same; may be empty
	agent string // end of the user agent, upstream's, so that audit policies and logs keep working
	build func(Config, shared) (Controller, error)
	needs []access // what the identity of this process must be allowed to do, on top of what `required` asks for every manager
}

// controllers lists every controller in start order.
var controllers = []descriptor{
	{name: replicaset.Name, alias: "replicaset", agent: replicaset.Name, build: buildReplicaSet, needs: replicaSetNeeds},
	{name: node.Name, alias: "nodelifecycle", agent: nodeAgent, build: buildNodeLifecycle, needs: nodeLifecycleNeeds},
	{name: tainteviction.Name, agent: nodeAgent, build: buildTaintEviction, needs: taintEvictionNeeds},
	{name: podgc.Name, alias: "podgc", agent: "pod-garbage-collector", build: buildPodGC, needs: podGCNeeds},
	{name: namespace.Name, alias: "namespace", agent: namespace.Name, build: buildNamespace, needs: namespaceNeeds},
}

// controllerNames are the canonical names, in start order; the slice is the caller's.
func controllerNames() []string {
	names := make([]string, 0, len(controllers))
	for _, c := range controllers {
		names = append(names, c.name)
	}
	return names
}

// controllerAliases maps each alias to its canonical name.
func controllerAliases() map[string]string {
	aliases := map[string]string{}
	for _, c := range controllers {
		if c.alias != "" {
			aliases[c.alias] = c.name
		}
	}
	return aliases
}

// controllerNamesWithAliases is for messages: "name (alias)".
func controllerNamesWithAliases() []string {
	names := make([]string, 0, len(controllers))
	for _, c := range controllers {
		name := c.name
		if c.alias != "" {
			name += " (" + c.alias + ")"
		}
		names = append(names, name)
	}
	return names
}
