package controller

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	now  = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	pods = &fakeCache{resource: schema.GroupResource{Resource: "pods"}}
	sets = &fakeCache{resource: schema.GroupResource{Group: "apps", Resource: "replicasets"}}
)

type fakeCache struct {
	resource schema.GroupResource
	version  string
	expected []string
}

func (c *fakeCache) Resource() schema.GroupResource { return c.resource }
func (c *fakeCache) Version() string                { return c.version }
func (c *fakeCache) Expect(version string)          { c.expected = append(c.expected, version) }

func at(podVersion, setVersion string) Versions {
	return Versions{{pods.resource, podVersion}, {sets.resource, setVersion}}
}

func TestBarrierState(t *testing.T) {
	for _, tt := range []struct {
		name      string
		pod, set  string // required
		at        Versions
		waitedFor time.Duration
		want      BarrierState
		missing   []schema.GroupResource
	}{
		{"nothing written", "", "", at("1", "1"), 0, Open, nil},
		{"nothing written, nothing known", "", "", at("", ""), 0, Open, nil},
		{"cache is behind with pods", "100", "", at("99", "200"), 0, Behind, []schema.GroupResource{pods.resource}},
		{"cache is behind with ReplicaSets", "", "100", at("200", "99"), 0, Behind, []schema.GroupResource{sets.resource}},
		{"caches are behind with both", "100", "100", at("99", "99"), 0, Behind, []schema.GroupResource{pods.resource, sets.resource}},
		{"cache has reached it", "100", "100", at("100", "100"), 0, Open, nil},
		{"cache is past it", "99", "", at("100", "1"), 0, Open, nil},
		{"numbers, not text", "100", "", at("99", "1"), 0, Behind, []schema.GroupResource{pods.resource}},
		{"behind for long", "100", "", at("99", "1"), BarrierPatience, Overdue, []schema.GroupResource{pods.resource}},
		{"behind for not so long", "100", "", at("99", "1"), BarrierPatience - 1, Behind, []schema.GroupResource{pods.resource}},
		{"cache has no version", "100", "", at("", "1"), 0, Overdue, nil},
		{"cache has an odd version", "100", "", at("abc", "1"), 0, Overdue, nil},
		{"nobody asked that cache", "100", "", Versions{{sets.resource, "1"}}, 0, Overdue, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b Barrier
			b.Require(pods, tt.pod, now.Add(-tt.waitedFor))
			b.Require(sets, tt.set, now.Add(-tt.waitedFor))
			b.Wait(now.Add(-tt.waitedFor))
			if got, missing := b.State(tt.at, now), b.Missing(tt.at); got != tt.want || !slices.Equal(missing, tt.missing) {
				t.Errorf("state %d, missing %v; want %d, %v", got, missing, tt.want, tt.missing)
			}
			if written := tt.pod+tt.set != ""; b.Unseen() != written {
				t.Errorf("unseen %t, want %t", b.Unseen(), written)
			}
		})
	}
}

// TestBarrierOverTime: patience is measured from the first write, is over until somebody has read live, begins anew after that, and ends when
// the cache has caught up.
func TestBarrierOverTime(t *testing.T) {
	var b Barrier
	b.Require(pods, "50", now)
	b.Require(pods, "100", now.Add(time.Second))
	b.Require(pods, "70", now.Add(2*time.Second))
	b.Wait(now.Add(3 * time.Second))
	for _, step := range []struct {
		after time.Duration
		pods  string
		want  BarrierState
	}{
		{0, "99", Behind}, {29 * time.Second, "99", Behind}, {30 * time.Second, "99", Overdue}, {31 * time.Second, "99", Overdue},
		{32 * time.Second, "100", Open}, {33 * time.Second, "99", Overdue},
	} {
		if got := b.State(at(step.pods, "1"), now.Add(step.after)); got != step.want {
			t.Errorf("after %v, at %s: state %d, want %d", step.after, step.pods, got, step.want)
		}
	}
	read := now.Add(time.Minute)
	b.ReadLive(pods, "250", read)
	b.Wait(read)
	for after, want := range map[time.Duration]BarrierState{0: Behind, BarrierPatience - 1: Behind, BarrierPatience: Overdue} {
		if got := b.State(at("99", "1"), read.Add(after)); got != want {
			t.Errorf("%v after a live read: state %d, want %d", after, got, want)
		}
	}
	b.Clear(read)
	if got := b.State(at("1", "1"), read.Add(time.Hour)); got != Open || b.Unseen() {
		t.Errorf("once all has been shown: state %d, unseen %t; want open and nothing", got, b.Unseen())
	}
}

// TestBarrierAfterALongSync: the writes of one that took longer than patience count from its beginning, and the last of them was answered just now.
func TestBarrierAfterALongSync(t *testing.T) {
	var b Barrier
	b.Require(pods, "100", now)
	for _, step := range []struct {
		after time.Duration
		want  BarrierState
	}{{31 * time.Second, Behind}, {31*time.Second + BarrierRecheck - 1, Behind}, {31*time.Second + BarrierRecheck, Overdue}} {
		if got := b.State(at("99", "1"), now.Add(step.after)); got != step.want {
			t.Errorf("%v after the sync began: state %d, want %d", step.after, got, step.want)
		}
		b.Wait(now.Add(step.after))
	}
}

func TestBarrierTellsHowLongAKeyWasHeldBack(t *testing.T) {
	var b Barrier
	if waited := b.Clear(now); waited != 0 {
		t.Errorf("waited %v without being held back", waited)
	}
	b.Require(pods, "100", now)
	b.Wait(now.Add(time.Second))
	b.Wait(now.Add(2 * time.Second))
	if waited := b.Clear(now.Add(5 * time.Second)); waited != 4*time.Second {
		t.Errorf("waited %v, want 4s: from the first sync that was held back", waited)
	}
	b.Require(pods, "200", now)
	b.Wait(now)
	b.ReadLive(pods, "300", now)
	if waited := b.Clear(now.Add(time.Second)); waited != 0 {
		t.Errorf("waited %v, want nothing: a live read ended the wait", waited)
	}
}

func TestBarrierAfterALiveRead(t *testing.T) {
	for _, tt := range []struct {
		name                string
		required, at, shown string // shown by the read
		want                string
	}{
		{"the cache must reach what was read", "", "44", "39", "39"},
		{"an answer older than what was written: the cluster was restored", "1000", "44", "30", "30"},
		{"what was written is required still", "42", "44", "", "42"},
		{"an answer that cannot be compared proves nothing", "42", "abc", "", "42"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b Barrier
			b.Require(sets, "7", now)
			b.Require(pods, tt.required, now)
			b.ReadLive(pods, tt.at, now)
			b.Require(pods, tt.shown, now)
			if got := b.required.Of(pods.resource); got != tt.want {
				t.Errorf("required of pods %q, want %q", got, tt.want)
			}
			if got := b.required.Of(sets.resource); got != "7" {
				t.Errorf("required of ReplicaSets %q, want 7 as before", got)
			}
		})
	}
}

func TestARequiredVersionIsExpectedOfTheCache(t *testing.T) {
	cache := &fakeCache{resource: pods.resource}
	var b Barrier
	for _, version := range []string{"5", "", "4"} {
		b.Require(cache, version, now)
	}
	if want := []string{"5", "4"}; !slices.Equal(cache.expected, want) {
		t.Errorf("expected of the cache %v, want %v", cache.expected, want)
	}
}
