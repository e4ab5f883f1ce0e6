package podkey

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
)

// Key names one pod for good; a pod of the same name that comes later has another key.
type Key struct {
	Name cache.ObjectName
	UID  types.UID
}

// Of returns the key of a pod.
func Of(pod *caches.Pod) Key { return Key{Name: cache.MetaObjectToName(pod), UID: pod.UID} }

// Namespace is that of the pod.
func (k Key) Namespace() string { return k.Name.Namespace }

// String is how logs show the key.
func (k Key) String() string { return k.Name.String() + "/" + string(k.UID) }
