package caches

import (
	"sync"

	"minikcm/internal/rv"
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
	than := h.version
	if than == "" {
		than = version // as long as there is none, all that is a version will do
	}
	if rv.AtLeast(version, than) {
		h.version = version
	}
}

// get is empty if there is none.
func (h *highest) get() string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.version
}
