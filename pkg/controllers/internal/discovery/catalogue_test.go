package discovery

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
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
	lists []*metav1.APIResourceList
	err   error
	asked int
}

func (d *fakeDiscovery) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	d.asked++
	return nil, d.lists, d.err
}

// slowDiscovery takes a second to answer.
type slowDiscovery struct {
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

// Whoever asks runs out of time. That is no failure of the discovery for those who wait for the answer: the next one asks.
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
