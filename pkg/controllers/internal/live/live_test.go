package live

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"minikcm/internal/faket"
	"minikcm/pkg/controller"
)

func TestMain(m *testing.M) { faket.Main(m) }

func TestGet(t *testing.T) {
	type get struct {
		after  time.Duration // since the first call
		since  time.Duration // earliest start of the read
		forget bool
		fails  bool
		want   int // number of the read
	}
	for _, tt := range []struct {
		name  string
		takes time.Duration
		gets  []get
	}{
		{"a result read too early is not shared", 0, []get{{want: 1}, {after: 2, since: 1, want: 2}}},
		{"nor a forgotten one", 0, []get{{want: 1}, {forget: true, want: 2}}},
		{"nor a failure", 0, []get{{want: 1, fails: true}, {want: 2}}},
		// The age of a result counts from the call.
		{"calls within a second share a slow read", 20 * time.Second, []get{{want: 1}, {want: 1}, {after: 999 * time.Millisecond, want: 1}}},
		{"a later call does not", 20 * time.Second, []get{{want: 1}, {after: time.Second, want: 2}, {after: time.Second, want: 2}}},
		{"a call waits for a minute at most", 90 * time.Second, []get{{want: 1}, {after: 2 * time.Second, fails: true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				r := NewReads(clock.RealClock{}, func(context.Context, string) (int, error) {
					reads++
					number := reads
					time.Sleep(tt.takes)
					if tt.gets[min(number, len(tt.gets))-1].fails {
						return number, errors.New("broken")
					}
					return number, nil
				})
				start := time.Now()
				var all sync.WaitGroup
				for i, g := range tt.gets {
					time.Sleep(time.Until(start.Add(g.after)))
					if g.forget {
						r.Forget("n")
					}
					all.Go(func() {
						if got, err := r.Get(t.Context(), "n", start.Add(g.since)); (err != nil) != g.fails || got != g.want {
							t.Errorf("call %d got the result of read %d, %v; want read %d", i, got, err, g.want)
						}
					})
					synctest.Wait()
				}
				all.Wait()
			})
		})
	}
}

func TestGetSame(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	known := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	for _, tt := range []struct {
		name     string
		uid      types.UID
		err      error
		replaced bool
	}{
		{"same", "1", nil, false},
		{"deleted", "", apierrors.NewNotFound(pods, "a"), true},
		{"created again", "2", nil, true},
		{"404 of a load balancer", "", apierrors.NewGenericServerResponse(404, "get", pods, "a", "no backend", 0, true), false},
	} {
		_, err := GetSame(t.Context(), known, func(context.Context, string, metav1.GetOptions) (*metav1.PartialObjectMetadata, error) {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: tt.uid}}, tt.err
		})
		if errors.Is(err, controller.ErrOutdated) != tt.replaced || !tt.replaced && !errors.Is(err, tt.err) {
			t.Errorf("%s: error %v, want replaced %t", tt.name, err, tt.replaced)
		}
	}
}
