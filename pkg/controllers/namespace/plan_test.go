package namespace

import (
	"errors"
	"testing"
	"time"

	"minikcm/pkg/controllers/internal/discovery"
)

var epoch = time.Unix(1e9, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func TestPodGate(t *testing.T) {
	known := func(err error, types ...discovery.Type) discovery.Result {
		return discovery.Result{Sent: epoch, Err: err, Types: types}
	}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		pods typeResult
		now  time.Duration
		c    discovery.Result
		want podGate
	}{
		{"empty list after the grace", typeResult{}, 5 * time.Second, known(nil, discovery.Pods), podsGone},
		{"empty list at its last instant", typeResult{}, 5*time.Second - 1, known(nil, discovery.Pods), podsEarly},
		{"pods", typeResult{remaining: 1}, 5 * time.Second, known(nil, discovery.Pods), podsLeft},
		{"pods before the grace is over", typeResult{remaining: 1}, 0, known(nil, discovery.Pods), podsLeft},
		{"a failing list is not an empty one", typeResult{err: broken}, 5 * time.Second, known(nil, discovery.Pods), podsFailed},
		{"a failing list with pods", typeResult{err: broken, remaining: 3}, 5 * time.Second, known(nil, discovery.Pods), podsFailed},
		{"not served, and not discovered either", typeResult{unserved: true}, 5 * time.Second, known(nil), podsGone},
		{"not served though discovered", typeResult{unserved: true}, 5 * time.Second, known(nil, discovery.Pods), podsFailed},
		{"not served, discovery incomplete", typeResult{unserved: true}, 5 * time.Second, known(broken), podsFailed},
		{"not served, no discovery", typeResult{unserved: true}, 5 * time.Second, discovery.Result{}, podsFailed},
		{"empty list is proof even if discovery misses pods", typeResult{}, 5 * time.Second, known(broken), podsGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := podGateOf(tt.pods, at(tt.now), at(5*time.Second), tt.c); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	broken := errors.New("broken")
	complete, partial := discovery.Result{Sent: epoch}, discovery.Result{Sent: epoch, Err: broken}
	for _, tt := range []struct {
		name  string
		r     report
		whole bool
		want  decision
	}{
		{"nothing left", report{content: complete, results: []typeResult{{}, {}}}, true, finalizable},
		{"nothing left, but not in one pass", report{content: complete, results: []typeResult{{}, {}}}, false, unverified},
		{"nothing left of the discovered types", report{content: partial, results: []typeResult{{}, {}}}, true, blocked},
		{"unparsable group version", report{content: discovery.Result{Sent: epoch, ParseErr: broken}}, true, blocked},
		{"never discovered", report{}, true, blocked},
		{"objects left", report{content: complete, results: []typeResult{{}, {remaining: 1}}}, true, blocked},
		{"an error", report{content: complete, results: []typeResult{{}, {err: broken}}}, true, blocked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(tt.r, tt.whole); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestNextSync(t *testing.T) {
	for _, tt := range []struct {
		waited     time.Duration
		unfinished int
		want       time.Duration
	}{
		{-5 * time.Second, 1, 300 * time.Millisecond},
		{0, 40, 300 * time.Millisecond},
		{4 * time.Second, 1, time.Second},
		{4 * time.Second, 90, 2 * time.Second},
		{32 * time.Second, 90, 8 * time.Second},
		{10 * time.Minute, 1, 8 * time.Second},
		{10*time.Minute + 1, 1, 30 * time.Second},
		{0, 10000, 30 * time.Second},
	} {
		if got := nextSync(tt.waited, tt.unfinished); got != tt.want {
			t.Errorf("next sync %v after %v with %d namespaces, want %v", got, tt.waited, tt.unfinished, tt.want)
		}
	}
}

func TestObservationsOutliveTerms(t *testing.T) {
	var d deletions
	d.note("uid", epoch)
	if seen := d.note("uid", at(time.Minute)); !seen.Equal(epoch) {
		t.Errorf("first seen at %v, want %v", seen, epoch)
	}
	d.forget("uid")
	if seen := d.note("uid", at(time.Hour)); !seen.Equal(at(time.Hour)) {
		t.Errorf("seen at %v after it was forgotten, want %v", seen, at(time.Hour))
	}
}
