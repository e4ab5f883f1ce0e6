package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestStatesAndRates(t *testing.T) {
	for _, tt := range []struct {
		name      string
		threshold float32
		t         tally
		state     zoneState
		rate      float32
	}{
		{"normal", 0.55, tally{10, 0}, zoneNormal, 0.1},
		{"full: as normal", 0.55, tally{0, 10}, zoneFull, 0.1},
		{"partial, small zone: none", 0.55, tally{5, 45}, zonePartial, 0},
		{"partial, one node more: secondary", 0.55, tally{5, 46}, zonePartial, 0.01},
		{"two down are never partial", 0.55, tally{1, 2}, zoneNormal, 0.1},
		{"above 1 no share is reached", 100, tally{1, 99}, zoneNormal, 0.1},
		{"above 1 a zone can still fail as a whole", 100, tally{0, 100}, zoneFull, 0.1},
		{"0 is reached by three", 0, tally{97, 3}, zonePartial, 0.01},
		{"0 is not reached by two", 0, tally{1, 2}, zoneNormal, 0.1},
	} {
		cfg := defaults()
		cfg.UnhealthyZoneThreshold = tt.threshold
		if state := tt.t.state(cfg); state != tt.state || rate(state, tt.t, cfg) != tt.rate {
			t.Errorf("%s: %v at rate %v, want %v, %v", tt.name, state, rate(state, tt.t, cfg), tt.state, tt.rate)
		}
	}
}

// Any rate above zero is valid, also if the interval does not fit into a time.Duration.
func TestVerySmallRates(t *testing.T) {
	for _, r := range []float32{1e-7, 1e-45} {
		l := newLimiter(r, day)
		l.take(day)
		for _, p := range []int{0, 15000} {
			if slot := l.slot(p); slot.Before(day.Add(115 * 24 * time.Hour)) {
				t.Errorf("rate %v: place %d of the line has its turn at %v, want no sooner than in 115 days", r, p, slot)
			}
		}
	}
}

func TestZoneOf(t *testing.T) {
	for _, tt := range []struct {
		name   string
		labels map[string]string
		want   string
	}{
		{"none", nil, ""},
		{"zone and region", map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}, "r:\x00:z"},
		{"region only", map[string]string{"topology.kubernetes.io/region": "r"}, "r:\x00:"},
		{"beta labels win", map[string]string{
			"topology.kubernetes.io/zone": "z", "failure-domain.beta.kubernetes.io/zone": "bz",
			"topology.kubernetes.io/region": "r", "failure-domain.beta.kubernetes.io/region": "br",
		}, "br:\x00:bz"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{}
			node.Labels = tt.labels
			if got := zoneOf(node); got != tt.want {
				t.Errorf("zoneOf = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLimiter(t *testing.T) {
	at := func(s float64) time.Time { return day.Add(time.Duration(s * float64(time.Second))) }
	t.Run("one at once, then one each interval", func(t *testing.T) {
		l := newLimiter(0.1, day)
		if l.slot(0).After(day) {
			t.Error("the first has to wait")
		}
		l.take(day)
		if got, want := l.slot(0), at(10); got.Sub(want).Abs() > time.Millisecond {
			t.Errorf("second at %v, want %v", got, want)
		}
		if got, want := l.slot(2), at(30); got.Sub(want).Abs() > time.Millisecond {
			t.Errorf("third in line at %v, want %v", got, want)
		}
	})
	for _, tt := range []struct {
		name      string
		old, next float32
		empty     bool // before the change
		want      time.Time
	}{
		{"same rate: same bucket", 0.1, 0.1, true, at(10)},
		{"full bucket stays full", 0.1, 0.5, false, at(0)},
		{"empty bucket starts empty", 0.1, 0.5, true, at(5 + 2)},
		{"after a stop the first waits", 0, 0.1, false, at(5 + 10)},
		{"a rate of one after a stop", 0, 1, false, at(5 + 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(tt.old, day)
			if tt.empty {
				l.take(day)
			}
			l.setRate(tt.next, at(5))
			if got := l.slot(0); got.Sub(tt.want).Abs() > time.Millisecond {
				t.Errorf("next token at %v, want %v", got, tt.want)
			}
		})
	}
}
