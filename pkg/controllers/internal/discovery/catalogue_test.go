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

func TestFresh(t *testing.T) {
	complete, broken := Answer{Sent: epoch}, Answer{Sent: epoch, Err: errors.New("broken")}
	for _, tt := range []struct {
		name           string
		latest         Answer
		notBefore, now time.Duration
		want           bool
		pause          time.Duration
	}{
		{"nothing asked yet", Answer{}, 0, 0, false, 0},
		{"complete and sent in time", complete, 0, time.Second, true, 0},
		{"sent before it was needed", complete, 1, time.Second, false, 0},
		{"too old for a last look", complete, 0, 11 * time.Second, false, 0},
		{"incomplete: not to be repeated yet", broken, time.Second, 2 * time.Second, true, 2 * time.Second},
		{"incomplete: to be repeated", broken, 0, 4 * time.Second, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, pause := fresh(tt.latest, 4*time.Second, at(tt.notBefore), at(tt.now))
			if got != tt.want || got && pause != tt.pause {
				t.Errorf("got %v, %v, want %v, %v", got, pause, tt.want, tt.pause)
			}
		})
	}
}

type fakeDiscovery struct {
	fakeapi.Readyz
	lists []*metav1.APIResourceList
	err   error
	asked int
	ask   func() // called by each discovery if it is set
}

func (d *fakeDiscovery) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	d.asked++
	if d.ask != nil {
		d.ask()
	}
	return nil, d.lists, d.err
}

// slowDiscovery takes a second to answer.
type slowDiscovery struct {
	fakeapi.Readyz
	lock  sync.Mutex
	asked int
}

func (d *slowDiscovery) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	d.lock.Lock()
	d.asked++
	d.lock.Unlock()
	select {
	case <-time.After(time.Second):
		return nil, []*metav1.APIResourceList{coreList()}, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func TestDiscoveryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &slowDiscovery{}
		c := NewCatalogue(client, clock.RealClock{}, deletable)
		var wait sync.WaitGroup
		read := func(after time.Duration) {
			wait.Go(func() {
				time.Sleep(after)
				notBefore := time.Now()
				answer, _, err := c.Read(t.Context(), notBefore)
				if err != nil || answer.Sent.Before(notBefore) || !answer.Complete() {
					t.Errorf("asked %v in: answer sent %v before, %v", after, notBefore.Sub(answer.Sent), err)
				}
			})
		}
		for range 50 {
			read(0)                      // these are served by the first request,
			read(500 * time.Millisecond) // these come while it runs and must not be
		}
		wait.Wait()
		if client.asked != 2 {
			t.Errorf("%d discoveries, want 2", client.asked)
		}
	})
}

func TestDiscoveryCutShortIsNotKept(t *testing.T) {
	c := NewCatalogue(&slowDiscovery{}, clock.RealClock{}, deletable)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Read(ctx, time.Time{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if !c.latest.Sent.IsZero() {
		t.Error("the answer of a cancelled request was kept")
	}
}

// Whoever asks runs out of time. That is no failure of the discovery for those who wait for the answer: the
// next one asks.
func TestDiscoveryThatIsGivenUpIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &slowDiscovery{}
		c := NewCatalogue(client, clock.RealClock{}, deletable)
		hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, _, err := c.Read(hasty, time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("whoever had no time: %v", err)
			}
		})
		synctest.Wait()
		wait.Go(func() {
			if answer, _, err := c.Read(t.Context(), time.Time{}); err != nil || !answer.Complete() {
				t.Errorf("whoever waited: %+v, %v", answer.Err, err)
			}
		})
		wait.Wait()
		if client.asked != 2 {
			t.Errorf("%d discoveries, want 2", client.asked)
		}
	})
}

// An API server that has just started serves its discovery before all types are in it.
func TestDiscoveryBeforeReadinessIsIncomplete(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before int // status of /readyz before the discovery
		after  int // and after it
		broken error
		want   string // the error; empty: the answer is complete
		checks int
	}{
		{"ready", 0, 0, nil, "", 1},
		{"not ready", 500, 500, nil, "start-apiextensions-controllers", 1},
		{"ready a moment later", 500, 0, nil, "start-apiextensions-controllers", 1},
		{"not ready, and a group fails", 500, 500, &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "x", Version: "v1"}: errors.New("down")}},
			"start-apiextensions-controllers", 1},
		{"no /readyz", 404, 404, nil, "", 1},
		{"no right to read /readyz", 403, 403, nil, "", 2},
		{"no roles yet", 403, 500, nil, "not ready", 2},
		{"roles a moment later", 403, 0, nil, "not ready", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := &fakeDiscovery{lists: []*metav1.APIResourceList{coreList()}, err: tt.broken}
			client.Status = tt.before
			client.ask = func() { client.Status = tt.after }
			got := Ask(t.Context(), client, testclock.NewFakeClock(epoch), deletable)
			if tt.want == "" && !got.Complete() || tt.want != "" && (got.Err == nil || !strings.Contains(got.Err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", got.Err, tt.want)
			}
			if len(got.Failing) > 0 {
				t.Errorf("failing are %v alone, but any type may be missing", got.Failing)
			}
			if client.Checks != tt.checks {
				t.Errorf("%d requests to /readyz, want %d", client.Checks, tt.checks)
			}
		})
	}
}

func TestReadAfterAClockStepSendsOneDiscovery(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	client := &fakeDiscovery{lists: []*metav1.APIResourceList{coreList()}}
	c := NewCatalogue(client, testclock.NewFakeClock(epoch), deletable)
	if _, _, err := c.Read(ctx, epoch.Add(time.Hour)); err != nil || client.asked != 1 {
		t.Errorf("%d discoveries, error %v, want one", client.asked, err)
	}
}

// panicky is a client with a bug.
type panicky struct{ *fakeDiscovery }

func (d panicky) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	if d.asked++; d.asked == 1 {
		panic("client")
	}
	return nil, []*metav1.APIResourceList{coreList()}, nil
}

// The loop contains panics. What one leaves behind must not keep the others from asking.
func TestDiscoveryThatPanicsIsRepeated(t *testing.T) {
	c := NewCatalogue(panicky{&fakeDiscovery{}}, clock.RealClock{}, deletable)
	func() {
		defer func() { _ = recover() }()
		_, _, _ = c.Read(t.Context(), time.Time{})
	}()
	if answer, _, err := c.Read(t.Context(), time.Time{}); err != nil || !answer.Complete() {
		t.Errorf("answer %+v, error %v", answer, err)
	}
}

func TestBrokenDiscoveryBacksOff(t *testing.T) {
	client := &fakeDiscovery{err: errors.New("down")}
	now := testclock.NewFakeClock(epoch)
	c := NewCatalogue(client, now, deletable)
	var pauses []time.Duration
	for range 7 {
		_, pause, err := c.Read(t.Context(), epoch)
		if err != nil {
			t.Fatal(err)
		}
		pauses = append(pauses, pause)
		now.Step(pause)
	}
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30}
	for i, p := range pauses {
		if p != want[i]*time.Second {
			t.Fatalf("pauses %v, want %v seconds", pauses, want)
		}
	}
	if client.asked != 7 {
		t.Errorf("%d discoveries, want 7", client.asked)
	}
	c.Hurry()
	for range 5 {
		if _, pause, _ := c.Read(t.Context(), epoch); pause != time.Second {
			t.Errorf("pause %v after an APIService changed, want 1s", pause)
		}
		now.Step(time.Second)
	}
}
