package namespace

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsShowOnlyWhatIsTerminating(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	m.show("a", report{outcomes: []typeResult{left("apps", "deployments", 2, nil)}}, []string{causeFinalizers, causeDiscovery})
	m.show("a", report{outcomes: []typeResult{left("apps", "deployments", 1, nil)}}, []string{causeFinalizers})
	if got := testutil.ToFloat64(m.remaining.vec.WithLabelValues("a", "apps", "deployments")); got != 1 {
		t.Errorf("remaining %v, want 1", got)
	}
	if n := testutil.CollectAndCount(m.blocked.vec); n != 1 {
		t.Errorf("%d causes shown, want 1", n)
	}
	m.clear("a")
	if n := testutil.CollectAndCount(m.blocked.vec) + testutil.CollectAndCount(m.remaining.vec); n != 0 {
		t.Errorf("%d series left", n)
	}
}

func TestMetricsAreBounded(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	for round := range 2 {
		for i := range 150 {
			m.show(fmt.Sprint(i), report{}, []string{causeGrace})
		}
		if n := testutil.CollectAndCount(m.blocked.vec); n != maxSeries {
			t.Fatalf("%d series in round %d, want %d", n, round, maxSeries)
		}
	}
	m.clear("0")
	m.show("140", report{}, []string{causeGrace})
	if n := testutil.CollectAndCount(m.blocked.vec); n != maxSeries {
		t.Errorf("%d series, want %d: a place became free", n, maxSeries)
	}
	m.reset()
	if n := testutil.CollectAndCount(m.blocked.vec); n != 0 {
		t.Errorf("%d series after the term", n)
	}
}

// A namespace shows more causes now and fewer then. Which of those find room is left to chance, the bound is not.
func TestMetricsOfManyCausesAreBounded(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	for i := range maxSeries - 2 {
		m.show(fmt.Sprint("other-", i), report{}, []string{causePods})
	}
	few, many := []string{causePods, causeError}, []string{causePods, causeError, causeContent, causeDiscovery}
	for range 50 {
		m.show("x", report{}, few)
		m.show("x", report{}, many)
		if n := testutil.CollectAndCount(m.blocked.vec); n > 100 {
			t.Fatalf("%d series, want at most 100", n)
		}
	}
}
