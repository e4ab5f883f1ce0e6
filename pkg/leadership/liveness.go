package leadership

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

// ObjectVersion identifies one state of one object.
type ObjectVersion struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

// Watched is one informer as Liveness sees it.
type Watched struct {
	Resource  schema.GroupVersionResource
	Namespace string // "" for all
	// Version is the resourceVersion the store has applied, "" before the first list.
	Version func() string
	// Objects is what the store holds now. It is called seldom, and its result may be large.
	Objects func() []ObjectVersion
}

// LivenessConfig says how long silence is trusted. Zero fields take the default in their comment.
type LivenessConfig struct {
	Interval time.Duration // between two consistent lists of a type; 30 s
	Silence  time.Duration // of a stream before it is reopened; 90 s: bookmarks come every 60 s
	Settle   time.Duration // for a reopened stream or a late event to arrive; 10 s
}

// LivenessDeps are what Liveness works with. All are needed.
type LivenessDeps struct {
	Metadata metadata.Interface // not through Streams: it must get answers when watches do not
	Streams  *Streams
	Elector  *Elector
	Metrics  *Metrics
	Clock    clock.WithTicker // nil: the real one
}

// Liveness notices informers that see nothing. It reopens silent watches; a type that still misses what a
// consistent list shows is stale, and then the elector steps down until it is current again.
//
// Lag alone is never staleness: a store that still moves is not stale. Nor is an API server that does not
// answer: nothing is judged without a list that has just succeeded.
type Liveness struct{}

// NewLiveness returns a monitor of the given informers; it does nothing before Run.
func NewLiveness(cfg LivenessConfig, deps LivenessDeps, watched []Watched) *Liveness {
	return &Liveness{}
}

// Run watches until ctx ends. Start it when the caches have synced.
func (l *Liveness) Run(ctx context.Context) {}

// Stale returns a sentence per stale type, sorted by resource; nothing if all are current.
func (l *Liveness) Stale() []string { return nil }

// Name is the name of the readiness check.
func (l *Liveness) Name() string { return "watches" }

// Check fails while a type is stale and names it. It belongs to readiness, not to liveness.
func (l *Liveness) Check(*http.Request) error { return nil }
