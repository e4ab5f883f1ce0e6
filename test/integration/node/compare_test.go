package node

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"minikcm/pkg/controllers/node"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// nodeLists records the lists of nodes that are asked for.
type nodeLists struct {
	lock  sync.Mutex
	whole []string // URLs of lists of whole nodes
	all   int      // lists of metadata of all nodes, page by page
}

func (l *nodeLists) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/nodes") {
			l.note(req)
		}
		return next.RoundTrip(req)
	})
}

func (l *nodeLists) note(req *http.Request) {
	l.lock.Lock()
	defer l.lock.Unlock()
	switch {
	case !strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadataList"):
		l.whole = append(l.whole, req.URL.String())
	case req.URL.Query().Get("limit") != "1":
		l.all++
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// At the start of a term the node cache is compared with the API server. Names and versions are enough; whole nodes are large.
func TestNodesAreComparedByTheirMetadata(t *testing.T) {
	w := newWorld(t)
	w.newFleet("a", 5)
	seen := &nodeLists{}
	cfg := w.config(node.Name)
	cfg.Wrap(seen.wrap)
	watches := faults.New(t, w.config(node.Name))
	running := w.standby(scaled(), cfg, watches.Config(), node.Name)
	// The cache never reaches the version that the API server has, so all nodes are compared.
	watches.FreezeWatches(faults.Watches("nodes"))
	w.newFleet("b", 1)
	running.BeginTerm()
	controlplane.Eventually(t, patience, func(context.Context) error {
		seen.lock.Lock()
		defer seen.lock.Unlock()
		if seen.all == 0 {
			return errors.New("all nodes have not been listed")
		}
		return nil
	})
	seen.lock.Lock()
	defer seen.lock.Unlock()
	if len(seen.whole) > 0 {
		t.Errorf("whole nodes were listed: %q", seen.whole)
	}
}
