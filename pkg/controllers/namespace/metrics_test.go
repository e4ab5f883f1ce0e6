package namespace

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsShowOnlyWhatIsTerminating(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	m.showCauses("a", causeFinalizers, causeDiscovery)
	m.showCauses("a", causeFinalizers)
	if n := testutil.CollectAndCount(m.blocked); n != 1 {
		t.Errorf("%d causes shown, want 1", n)
	}
	m.showCauses("a")
	if n := testutil.CollectAndCount(m.blocked); n != 0 {
		t.Errorf("%d series left", n)
	}
}

// A namespace shows more causes now and fewer then. Which of those find room is left to chance, the bound is not.
func TestMetricsOfManyCausesAreBounded(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	for i := range maxSeries - 2 {
		m.showCauses(fmt.Sprint("other-", i), causePods)
	}
	few, many := []string{causePods, causeError}, []string{causePods, causeError, causeContent, causeDiscovery}
	for range 50 {
		m.showCauses("x", few...)
		m.showCauses("x", many...)
		if n := testutil.CollectAndCount(m.blocked); n > 100 {
			t.Fatalf("%d series, want at most 100", n)
		}
	}
}
