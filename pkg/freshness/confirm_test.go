package freshness

import (
	"context"
	"testing"
	"time"

	"minikcm/internal/fakeapi"
)

func TestConfirm(t *testing.T) {
	listed := objects(object("a", "1", "10"), object("b", "2", "20"))
	for _, tt := range []struct {
		name   string
		cached ObjectVersions
		store  int           // version of the store; the list has 30
		later  time.Duration // the store equals the list; zero means never
		ends   time.Duration // the context
		err    error         // of lists
		want   error
		lists  int
	}{
		{"equal", listed, 0, 0, time.Hour, nil, nil, 1},
		{"equal a moment later", object("a", "1", "10"), 0, 100 * time.Millisecond, time.Hour, nil, nil, 1},
		{"object is missing", object("a", "1", "10"), 29, time.Second, time.Hour, nil, errBehind, 1},
		{"object is missing until the end of the context", object("a", "1", "10"), 29, time.Second, 100 * time.Millisecond, nil, context.DeadlineExceeded, 1},
		{"object was deleted after the list", object("a", "1", "10"), 31, 0, time.Hour, nil, nil, 1},
		{"no response", listed, 0, 0, time.Hour, errAway, errAway, 0},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := &world{version: 30, store: tt.store, objects: listed, cached: tt.cached, err: tt.err}
			if tt.later > 0 {
				time.AfterFunc(tt.later, func() { w.set(func(w *world) { w.cached = w.objects }) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
			defer cancel()
			fakeapi.WantError(t, "Confirm", w.pods().Confirm(ctx, w), tt.want)
			fakeapi.Want(t, "lists", w.lists, tt.lists)
		})
	}
}
