package freshness

import (
	"testing"
	"time"

	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
)

// TestDifferenceTo has the differences between a list and a cache.
func TestConfirm(t *testing.T) {
	listed := objects(object("a", "1", "10"), object("b", "2", "20"))
	for _, tt := range []struct {
		name         string
		version      int           // of the store; 0 before the first list
		later        time.Duration // the store reaches the version of the list; zero means never
		cached       ObjectVersions
		err          error // of lists
		want         error
		heads, whole int // lists
	}{
		{"version of the list", 30, 0, nil, nil, nil, 1, 0},
		{"version of the list, a moment later", 29, 100 * time.Millisecond, nil, nil, nil, 1, 0},
		{"quiet type", 20, 0, listed, nil, nil, 1, 1},
		{"never filled", 0, 0, nil, nil, ErrBehind, 1, 1},
		{"object is missing", 20, 0, object("a", "1", "10"), nil, ErrBehind, 1, 1},
		{"no response", 30, 0, listed, errAway, errAway, 0, 0},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := &world{version: 30, objects: listed, store: tt.version, cached: tt.cached, err: tt.err}
			watched := w.pods()
			if tt.version == 0 {
				watched.Version = func() string { return "" }
			}
			if tt.later > 0 {
				time.AfterFunc(tt.later, func() { w.set(func(w *world) { w.store = w.version }) })
			}
			fakeapi.WantError(t, "Confirm", watched.Confirm(t.Context(), w, clock.RealClock{}), tt.want)
			if w.heads != tt.heads || w.lists != tt.whole {
				t.Errorf("%d lists of one object and %d of all, want %d and %d", w.heads, w.lists, tt.heads, tt.whole)
			}
		})
	}
}
