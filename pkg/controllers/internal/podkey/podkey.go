// Package podkey identifies pods in queues by name and UID: a decision to evict or collect a pod must not
// reach a later pod with the same name.
package podkey

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
)

// Key identifies a pod by name and UID.
type Key struct {
	Name cache.ObjectName
	UID  types.UID
}

// ForPod returns the key of a pod.
func ForPod(pod *caches.Pod) Key { return Key{Name: cache.MetaObjectToName(pod), UID: pod.UID} }

// Namespace returns the namespace of the pod.
func (k Key) Namespace() string { return k.Name.Namespace }

// String returns the key for logs.
func (k Key) String() string { return k.Name.String() + "/" + string(k.UID) }
