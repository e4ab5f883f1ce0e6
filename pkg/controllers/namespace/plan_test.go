package namespace

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		waited      time.Duration
		terminating int
		want        time.Duration
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
		if got := nextSync(tt.waited, tt.terminating); got != tt.want {
			t.Errorf("next sync %v after %v with %d namespaces, want %v", got, tt.waited, tt.terminating, tt.want)
		}
	}
}

func TestFinalizers(t *testing.T) {
	for _, tt := range []struct {
		name           string
		spec           []corev1.FinalizerName
		meta           []string
		others         []corev1.FinalizerName
		ours, goesAway bool
	}{
		{"ours alone", []corev1.FinalizerName{"kubernetes"}, nil, []corev1.FinalizerName{}, true, true},
		{"others are sorted, each once", []corev1.FinalizerName{"b/x", "kubernetes", "a/x", "b/x"}, nil, []corev1.FinalizerName{"a/x", "b/x"}, true, false},
		{"held by its metadata", []corev1.FinalizerName{"kubernetes"}, []string{"orphan"}, []corev1.FinalizerName{}, true, false},
		{"ours is done", []corev1.FinalizerName{"a/x"}, nil, []corev1.FinalizerName{"a/x"}, false, false},
		{"finalized", nil, nil, []corev1.FinalizerName{}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Finalizers: tt.meta}, Spec: corev1.NamespaceSpec{Finalizers: tt.spec}}
			if diff := cmp.Diff(tt.others, otherFinalizers(ns)); diff != "" {
				t.Error(diff)
			}
			if ourFinalizer(ns) != tt.ours || goesWithUs(ns) != tt.goesAway {
				t.Errorf("ours %v, goes with us %v, want %v, %v", ourFinalizer(ns), goesWithUs(ns), tt.ours, tt.goesAway)
			}
		})
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

// A type that discovery did not show in the first pass is listed in a later one, and pages grow again.
func TestTypesOfLaterPasses(t *testing.T) {
	now := time.Unix(1e9, 0)
	resource := func(name string) discovery.Type {
		return discovery.Type{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: name}}
	}
	empty, full, late := resource("empty"), resource("full"), resource("late")
	s := &state{timeouts: map[schema.GroupResource]int{}}
	s.record([]typeResult{{resource: empty}, {resource: full, remaining: 1, timedOut: true}}, now)
	if got := s.typesOfPass(discovery.Result{Types: []discovery.Type{empty, full, late}}); !slices.Equal(got, []discovery.Type{full, late}) {
		t.Errorf("types of the second pass are %v, want the full and the late one", got)
	}
	s.record([]typeResult{{resource: full, remaining: 1}, {resource: late}}, now)
	if got := s.typesOfPass(discovery.Result{Types: []discovery.Type{empty, full, late}}); !slices.Equal(got, []discovery.Type{full}) {
		t.Errorf("types of the third pass are %v, want the full one", got)
	}
	if n := s.timeouts[full.GroupResource()]; n != 0 {
		t.Errorf("%d timeouts count after a pass without any, want 0", n)
	}
}
