package app

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/caches"
)

// apiServerLease begins the names of the Leases with which API servers show their identity. Their label
// apiserver.kubernetes.io/identity is not in the cache.
const apiServerLease = "apiserver-" // k8s.io/apiserver v0.37, server.NewConfig

// apiServers returns a function that counts the API servers by their identity Leases. That is a hint: a server that has
// gone is counted for up to an hour, and servers on one host name share a Lease.
func apiServers(leases *caches.Leases) func() int {
	return func() int {
		n := 0
		for _, name := range leases.Names() {
			if name.Namespace == metav1.NamespaceSystem && strings.HasPrefix(name.Name, apiServerLease) {
				n++
			}
		}
		return n
	}
}
