package namespace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/pkg/controllers/internal/discovery"
)

func TestStrideAfterARequest(t *testing.T) {
	s := func(seconds int) time.Duration { return time.Duration(seconds) * time.Second }
	for _, tt := range []struct {
		name        string
		now, asked  stride
		long, brisk bool
		want        stride
	}{
		{"a brisk answer to the first stride", stride{500, s(10)}, stride{500, s(10)}, false, true, stride{500, s(10)}},
		{"an answer in good time changes nothing", stride{31, s(40)}, stride{31, s(40)}, false, false, stride{31, s(40)}},
		{"too long", stride{500, s(10)}, stride{500, s(10)}, true, false, stride{125, s(20)}},
		{"too long again", stride{31, s(40)}, stride{31, s(40)}, true, false, stride{7, s(60)}},
		{"too long for the last", stride{1, s(60)}, stride{1, s(60)}, true, false, stride{1, s(60)}},
		{"too long for another one sent with the same stride", stride{125, s(20)}, stride{500, s(10)}, true, false, stride{125, s(20)}},
		{"a brisk answer", stride{7, s(60)}, stride{7, s(60)}, false, true, stride{14, s(30)}},
		{"a brisk answer near the end", stride{448, s(15)}, stride{448, s(15)}, false, true, stride{500, s(10)}},
		{"a brisk answer to an older stride", stride{14, s(30)}, stride{7, s(60)}, false, true, stride{14, s(30)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.now.after(tt.asked, tt.long, tt.brisk); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestTooLong(t *testing.T) {
	for _, tt := range []struct {
		err  error
		took time.Duration
		want bool
	}{
		{nil, time.Minute, false},
		{io.ErrUnexpectedEOF, time.Second, false},
		{io.ErrUnexpectedEOF, 10 * time.Second, true}, // a proxy that had enough
		{fmt.Errorf("get: %w", context.DeadlineExceeded), time.Second, true},
		{apierrors.NewTimeoutError("slow", 1), time.Second, true},
		{apierrors.NewInternalError(errors.New("conversion webhook")), 30 * time.Second, true},
		{apierrors.NewTooManyRequests("later", 1), time.Second, false},
		{context.Canceled, time.Minute, false},
	} {
		if got := tooLong(tt.err, tt.took); got != tt.want {
			t.Errorf("%v after %v: %v, want %v", tt.err, tt.took, got, tt.want)
		}
	}
}

// laden is an API server with objects of one type, each of which costs it time.
type laden struct {
	metadata.ResourceInterface
	list, remove time.Duration // for each object

	lock    sync.Mutex
	objects int
	cut     int // removals that were given up
}

func (l *laden) Resource(schema.GroupVersionResource) metadata.Getter { return l }
func (l *laden) Namespace(string) metadata.ResourceInterface          { return l }

func (l *laden) left() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.objects
}

func (l *laden) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	n := min(l.left(), int(o.Limit))
	select {
	case <-time.After(time.Duration(n) * l.list):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &metav1.PartialObjectMetadataList{Items: make([]metav1.PartialObjectMetadata, n)}, nil
}

func (l *laden) DeleteCollection(ctx context.Context, _ metav1.DeleteOptions, o metav1.ListOptions) error {
	for range min(l.left(), int(o.Limit)) {
		select {
		case <-time.After(l.remove):
		case <-ctx.Done():
			l.lock.Lock()
			defer l.lock.Unlock()
			l.cut++
			return ctx.Err()
		}
		l.lock.Lock()
		l.objects--
		l.lock.Unlock()
	}
	return nil
}

// Pages that take too long become smaller until they are answered, whatever an object costs.
func TestASlowTypeIsEmptied(t *testing.T) {
	for _, tt := range []struct {
		name         string
		list, remove time.Duration
		within       time.Duration
	}{
		{"a list of 500 takes 30 s", 60 * time.Millisecond, 0, 2 * time.Minute},
		{"a list of one takes 30 s", 30 * time.Second, 0, 20 * time.Minute},
		{"a webhook takes 50 ms for each object", 0, 50 * time.Millisecond, 2 * time.Minute},
		{"a webhook takes 9 s for each object", 0, 9 * time.Second, 10 * time.Minute},
		{"a webhook takes 30 s for each object", 0, 30 * time.Second, 30 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, terminating())
				b.deps.Clock, b.silence.clock = clock.RealClock{}, clock.RealClock{}
				objects := 600
				if tt.remove > time.Second || tt.list > time.Second {
					objects = 10
				}
				api := &laden{list: tt.list, remove: tt.remove, objects: objects}
				b.deps.Metadata = api
				m := b.memory(terminating())
				begin := time.Now()
				for time.Since(begin) < tt.within {
					p := b.newPurger(terminating(), m, time.Now())
					out := p.purge(t.Context(), discovery.Pods)
					b.end(p)
					if out.err == nil && out.remaining == 0 {
						t.Logf("emptied after %v, %d removals cut", time.Since(begin), api.cut)
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
				t.Errorf("%d of %d objects left after %v", api.left(), objects, tt.within)
			})
		})
	}
}

// Half of the workers are for those who do not need to wait.
func TestSlowTypesDoNotTakeAllWorkers(t *testing.T) {
	b := newBench(t, terminating())
	b.patient = patientSyncs(4)
	slow := newStrides()
	slow.listed(discovery.Pods, firstStride(), minPatience, context.DeadlineExceeded)
	var patient []*purger
	for range 4 {
		p := b.newPurger(terminating(), &memory{strides: slow}, b.clock.Now())
		if p.patient {
			patient = append(patient, p)
		} else if out := p.purge(t.Context(), discovery.Pods); !errors.Is(out.err, errNotTried) {
			t.Errorf("error %v, want that it was not tried", out.err)
		}
	}
	if len(patient) != 2 {
		t.Errorf("%d of 4 workers wait for slow types, want 2", len(patient))
	}
	for _, p := range patient {
		b.end(p)
	}
	if p := b.newPurger(terminating(), &memory{strides: slow}, b.clock.Now()); !p.patient {
		t.Error("none may wait after all have ended")
	}
}
