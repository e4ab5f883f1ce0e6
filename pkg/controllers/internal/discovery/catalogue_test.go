package discovery

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
)

func TestDiscoveryIsReused(t *testing.T) {
	for _, tt := range []struct {
		name             string
		notBefore, after time.Duration // the second read, after the first
		want             int           // discoveries
	}{
		{"complete and sent in time", 0, time.Second, 1},
		{"sent before notBefore", 1, time.Second, 2},
		{"notBefore in the future, as after a step of the clock", time.Hour, time.Second, 2},
		{"ten seconds old", 0, 10 * time.Second, 1},
		{"older", 0, 10*time.Second + 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := core()
			now := testclock.NewFakeClock(epoch)
			c := NewCatalogue(client, now, deletable)
			fakeapi.Must(c.Read(t.Context(), epoch))
			now.Step(tt.after)
			if _, err := c.Read(t.Context(), at(tt.notBefore)); err != nil || client.Count() != tt.want {
				t.Errorf("%d discoveries, error %v, want %d", client.Count(), err, tt.want)
			}
		})
	}
}

// core returns a discovery client of an API server with core types alone.
func core() *fakeapi.Discovery {
	return &fakeapi.Discovery{Lists: []*metav1.APIResourceList{fakeapi.CoreList()}}
}

func TestDiscoveryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := core()
		client.Takes = time.Second
		c := NewCatalogue(client, clock.RealClock{}, deletable)
		var wait sync.WaitGroup
		read := func(after time.Duration) {
			wait.Go(func() {
				time.Sleep(after)
				notBefore := time.Now()
				result, err := c.Read(t.Context(), notBefore)
				if err != nil || result.Sent.Before(notBefore) || !result.Complete() {
					t.Errorf("read after %v: result sent %v before, %v", after, notBefore.Sub(result.Sent), err)
				}
			})
		}
		for range 50 {
			read(0)                      // these callers share the first request
			read(500 * time.Millisecond) // these callers come later and need another request
		}
		wait.Wait()
		fakeapi.Want(t, "discoveries", client.Count(), 2)
	})
}

// A caller with a short deadline does not fail other callers.
func TestCanceledDiscoveryIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := core()
		client.Takes = time.Second
		c := NewCatalogue(client, clock.RealClock{}, deletable)
		hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, err := c.Read(hasty, time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("caller without time: %v", err)
			}
		})
		synctest.Wait()
		wait.Go(func() {
			if result, err := c.Read(t.Context(), time.Time{}); err != nil || !result.Complete() {
				t.Errorf("waiting caller: %+v, %v", result.Err, err)
			}
		})
		wait.Wait()
		fakeapi.Want(t, "discoveries", client.Count(), 2)
	})
}

// An API server that has just started serves an incomplete discovery.
func TestDiscoveryBeforeReadinessIsIncomplete(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before int // status of /readyz before the discovery
		after  int // and after it
		broken error
		want   string // error text; empty if complete
		checks int
	}{
		{"ready", 0, 0, nil, "", 1},
		{"ready a moment later", 500, 0, nil, "start-apiextensions-controllers", 1},
		{"not ready, and a group fails", 500, 500, &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "x", Version: "v1"}: errors.New("down")}},
			"start-apiextensions-controllers", 1},
		{"no /readyz", 404, 404, nil, "", 1},
		{"no right to read /readyz", 403, 403, nil, "", 2},
		{"no roles yet", 403, 500, nil, "not ready", 2},
		{"roles a moment later", 403, 0, nil, "not ready", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := core()
			client.Err, client.Status = tt.broken, tt.before
			client.Called = func() { client.Status = tt.after }
			got := FetchTypes(t.Context(), client, testclock.NewFakeClock(epoch), deletable)
			if tt.want == "" && !got.Complete() || tt.want != "" && (got.Err == nil || !strings.Contains(got.Err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", got.Err, tt.want)
			}
			fakeapi.Want(t, "failing group versions, although any type may be missing", len(got.Failing), 0)
			fakeapi.Want(t, "requests to /readyz", client.Checks, tt.checks)
		})
	}
}

// The loop recovers from panics. The next caller must not wait for the failed read.
func TestDiscoveryThatPanicsIsRepeated(t *testing.T) {
	client := core()
	client.Called = func() { panic("a client with a bug") }
	c := NewCatalogue(client, clock.RealClock{}, deletable)
	func() {
		defer func() { _ = recover() }()
		_, _ = c.Read(t.Context(), time.Time{})
	}()
	client.Called = nil
	if result, err := c.Read(t.Context(), time.Time{}); err != nil || !result.Complete() {
		t.Errorf("result %+v, error %v", result, err)
	}
}

func TestBrokenDiscoveryBacksOff(t *testing.T) {
	client := &fakeapi.Discovery{Err: errors.New("down")}
	now := testclock.NewFakeClock(epoch)
	c := NewCatalogue(client, now, deletable)
	for i, pause := range []time.Duration{1, 2, 4, 8, 8} {
		for _, step := range []time.Duration{0, pause*time.Second - 1} {
			now.Step(step)
			if _, err := c.Read(t.Context(), epoch); err != nil || client.Count() != i+1 {
				t.Fatalf("%d discoveries, error %v, want %d", client.Count(), err, i+1)
			}
		}
		now.Step(1)
	}
}
