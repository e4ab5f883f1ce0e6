package garbagecollector

import (
	"errors"

	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestSchedule(t *testing.T) {
	at := func(d time.Duration) time.Time { return began.Add(d) }
	t.Run("now and then, if nothing happens", func(t *testing.T) {
		if s := (schedule{next: began}).looked(true, began); !s.next.Equal(at(lookEvery)) {
			t.Errorf("next at %v", s.next.Sub(began))
		}
	})
	t.Run("some times after an event, then no more", func(t *testing.T) {
		s := schedule{next: at(time.Hour)}.after(changed, began)
		var looks []time.Duration
		for range len(echoes) {
			looks = append(looks, s.next.Sub(began))
			s = s.looked(true, s.next)
		}
		want := slices.Clone(echoes[:])
		want[2] = want[1] + time.Second // after two looks there is a rest of one second
		if !slices.Equal(looks, want) {
			t.Errorf("looks after %v, want %v", looks, want)
		}
		if wait := s.next.Sub(at(looks[len(looks)-1])); wait != lookEvery {
			t.Errorf("then after %v", wait)
		}
	})
	t.Run("events that come again and again do not put it off", func(t *testing.T) {
		s := schedule{next: at(time.Hour)}
		for n := range 10 {
			s = s.after(changed, at(time.Duration(n)*20*time.Millisecond))
		}
		if !s.next.Equal(at(echoes[0])) {
			t.Errorf("next at %v", s.next.Sub(began))
		}
	})
	t.Run("less and less often while it is incomplete", func(t *testing.T) {
		s, now := schedule{}, began
		var pauses []time.Duration
		for range 7 {
			s = s.looked(false, now)
			pauses = append(pauses, s.next.Sub(now)/time.Second)
			now = s.next
		}
		if !slices.Equal(pauses, []time.Duration{1, 2, 4, 8, 16, 30, 30}) {
			t.Errorf("pauses %v", pauses)
		}
	})
	t.Run("less and less often while events come all the time", func(t *testing.T) {
		for _, tt := range []struct {
			what stir
			want int // discoveries in ten minutes; each event alone would make six
		}{{changed, 70}, {newcomer, 610}} {
			s := schedule{next: at(0)}
			looks := 0
			for now := began; now.Before(at(10 * time.Minute)); now = now.Add(50 * time.Millisecond) {
				if now.Sub(began)%(300*time.Millisecond) == 0 {
					s = s.after(tt.what, now)
				}
				if !s.next.After(now) {
					looks, s = looks+1, s.looked(true, now)
				}
			}
			if looks > tt.want || looks < tt.want/2 {
				t.Errorf("%d: %d discoveries in ten minutes, want some %d", tt.what, looks, tt.want)
			}
			for s.next.Before(at(time.Hour)) {
				s = s.looked(true, s.next)
			}
			if s = s.after(changed, at(time.Hour)); s.next.Sub(at(time.Hour)) != echoes[0] {
				t.Errorf("after a quiet time an event is waited with for %v", s.next.Sub(at(time.Hour)))
			}
		}
	})
	t.Run("the first list shows little that discovery has not", func(t *testing.T) {
		s := schedule{next: began}.looked(true, began)
		var looks []time.Duration
		for s = s.after(filled, at(time.Millisecond)); s.next.Before(at(time.Minute)); s = s.looked(true, s.next) {
			looks = append(looks, s.next.Sub(began).Round(time.Second))
		}
		if !slices.Equal(looks, []time.Duration{10 * time.Second, 30 * time.Second}) {
			t.Errorf("looks after %v", looks)
		}
	})
	t.Run("at once for somebody who has to know, after the rest", func(t *testing.T) {
		s := schedule{next: began}.looked(true, began)
		if s = s.soon(at(time.Millisecond)); !s.next.Equal(at(askedRest)) {
			t.Errorf("next at %v", s.next.Sub(began))
		}
		for n := range 10 { // one after the other, who do not have to rest longer and longer
			if s = s.looked(true, at(time.Duration(n)*time.Second)).soon(at(time.Duration(n)*time.Second + 1)); !s.next.Equal(at(time.Duration(n)*time.Second + askedRest)) {
				t.Errorf("the %dth next at %v", n, s.next.Sub(began))
			}
		}
		if s = s.looked(true, at(minRest)).soon(at(time.Minute)); !s.next.Equal(at(time.Minute)) {
			t.Errorf("next at %v", s.next.Sub(began))
		}
		s = schedule{}
		for range 4 {
			s = s.looked(false, began) // the next one is in 8 s
		}
		if s = s.soon(at(time.Second)); !s.next.Equal(at(8 * time.Second)) {
			t.Errorf("while discovery fails, next at %v", s.next.Sub(began))
		}
	})
}

// What there are of types is known again after a discovery that was asked for later, and somebody who has to know brings that about.
func TestADiscoveryIsAskedForByWhoHasToKnow(t *testing.T) {
	w := newAPIWorld(t)
	w.start(t)
	w.is(t, apiServices, current)
	w.api.Serve(widgetsV1, metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true}) // and no event tells of it
	moment := time.Now()
	if w.discoveredSince(moment) {
		t.Fatal("a discovery from before is said to have been asked for after")
	}
	fakeapi.Eventually(t, func() error {
		if !w.discoveredSince(moment) {
			return errors.New("discovery was not asked")
		}
		return nil
	})
	if s := w.state(widgetType); s.phase == "" {
		t.Error("the type is not known")
	}
	if took := time.Since(moment); took > 8*time.Second {
		t.Errorf("it took %v, as without anybody who waits", took)
	}
}

// Groups that may hide something are told of; those that store nothing that can be owned are not.
func TestWhatIsInAGroupThatDoesNotAnswer(t *testing.T) {
	watchable := &knownType{apiType: apiType{watched: true}}
	of := func(group, resource string) schema.GroupResource {
		return schema.GroupResource{Group: group, Resource: resource}
	}
	types := &knownTypes{
		deps: typesDeps{Clock: clocktesting.NewFakeClock(began)},
		types: map[schema.GroupResource]*knownType{
			of("stores.example.com", "a"): watchable, of("stores.example.com", "b"): {}, of("shows.example.com", "c"): {}, of("answers.example.com", "d"): watchable,
		},
		latest: newCatalogue(began, []string{"never-seen.example.com", "stores.example.com", "shows.example.com", "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"}),
	}
	if got := types.unknownGroups(); !slices.Equal(got, []string{"never-seen.example.com", "stores.example.com"}) {
		t.Errorf("groups %v", got)
	}
}
