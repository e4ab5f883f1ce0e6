package namespace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

// watchedClient hands out one watch.
type watchedClient struct {
	metadata.Interface
	metadata.ResourceInterface
	stream *watch.FakeWatcher
	began  *int
}

func (c watchedClient) Resource(schema.GroupVersionResource) metadata.Getter { return c }
func (c watchedClient) Namespace(string) metadata.ResourceInterface          { return c }
func (c watchedClient) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	*c.began++
	return c.stream, nil
}

func TestTriggers(t *testing.T) {
	object := &metav1.PartialObjectMetadata{}
	for _, tt := range []struct {
		name    string
		changes bool
		fired   int // by one event of each type
	}{
		{"content: when it goes", false, 1},
		{"an APIService: when it changes, too", true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, fired := 0, 0
				stream := watch.NewFake()
				tr := newTriggers(watchedClient{stream: stream, began: &began}, clock.RealClock{}, func(string, time.Duration) { fired++ })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				targets := []target{{resource: apiServices, changes: tt.changes}}
				for range 3 { // later looks keep the watch
					tr.arm(ctx, "test", targets, 0)
					synctest.Wait()
				}
				stream.Add(object)
				stream.Modify(object)
				stream.Delete(object)
				synctest.Wait()
				if began != 1 || fired != tt.fired {
					t.Errorf("%d watches, fired %d times, want 1 and %d", began, fired, tt.fired)
				}
				tr.arm(ctx, "test", nil, 0)
				synctest.Wait()
				if len(tr.running) != 0 || !stream.IsStopped() {
					t.Errorf("%d watches go on", len(tr.running))
				}
				tr.join()
			})
		})
	}
}

// blockedClient never gets an answer.
type blockedClient struct {
	metadata.Interface
	metadata.ResourceInterface
}

func (c blockedClient) Resource(schema.GroupVersionResource) metadata.Getter { return c }
func (c blockedClient) Namespace(string) metadata.ResourceInterface          { return c }
func (c blockedClient) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestWatchesAreBounded(t *testing.T) {
	tr := newTriggers(blockedClient{}, clock.RealClock{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var targets []target
	for _, letter := range "abcdefghijklmnopqrstuvwxyz" {
		targets = append(targets, target{resource: apiServices, name: string(letter)})
	}
	for _, letter := range "abcdefghijklmnopqrstuvwxyz" {
		tr.arm(ctx, string(letter), targets, 0)
	}
	tr.lock.Lock()
	running := len(tr.running)
	tr.lock.Unlock()
	if running != 100 {
		t.Errorf("%d watches, want 100: ten for each of the first ten keys", running)
	}
	cancel()
	tr.join()
}

// An event is followed by a look soon, and the longer events come the longer is the time to the next look.
func TestLooksAfterEventsAreSpaced(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct {
		name   string
		rest   time.Duration
		events []time.Duration
		want   []time.Duration // when the look is due that follows each
	}{
		{"one event", 0, []time.Duration{0}, []time.Duration{50 * ms}},
		{"several at once", 0, []time.Duration{0, 10 * ms, 49 * ms}, []time.Duration{50 * ms, 50 * ms, 50 * ms}},
		{"pods that end one after the other", 0, []time.Duration{0, 60 * ms, 1000 * ms, 1060 * ms}, []time.Duration{50 * ms, 110 * ms, 1050 * ms, 1156 * ms}},
		{"objects that are made again after each look", 0,
			[]time.Duration{0, 20_000 * ms, 20_060 * ms, 20_500 * ms, 21_060 * ms}, []time.Duration{50 * ms, 20_050 * ms, 21_050 * ms, 21_050 * ms, 22_050 * ms}},
		{"looks that take long", 8 * time.Second, []time.Duration{0, 4000 * ms, 9000 * ms}, []time.Duration{50 * ms, 8050 * ms, 16050 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pace{rest: tt.rest}
			var got []time.Duration
			for _, e := range tt.events {
				p = p.next(at(e))
				got = append(got, p.due.Sub(epoch))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
