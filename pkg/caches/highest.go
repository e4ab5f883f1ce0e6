package caches

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// highest keeps the highest of the resource versions that it is given. Zero has none.
type highest struct {
	lock    sync.Mutex
	version string
}

// raise ignores what is no version.
func (h *highest) raise(version string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.version == "" {
		h.version = "0"
	}
	if order, err := resourceversion.CompareResourceVersion(version, h.version); err == nil && order > 0 {
		h.version = version
	}
}

// get is empty or "0" if there is none.
func (h *highest) get() string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.version
}
