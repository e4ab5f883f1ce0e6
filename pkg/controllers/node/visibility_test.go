package node

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var errOutage = apierrors.NewInternalError(errors.New("etcdserver: no leader"))

func seconds(s int) time.Time { return day.Add(time.Duration(s) * time.Second) }

func TestTicks(t *testing.T) {
	v := newVisibility(defaults(), day)
	v.begin(day)
	for _, tt := range []struct {
		at   int
		want time.Duration
	}{{1, 0}, {2, 0}, {8, 0}, {15, 7 * time.Second}, {16, 0}} {
		if got := v.tick(seconds(tt.at)); got != tt.want {
			t.Errorf("stall at %d s = %v, want %v", tt.at, got, tt.want)
		}
	}
}

func TestVisibility(t *testing.T) {
	type step func(v *visibility)
	event := func(at int) step { return func(v *visibility) { v.event(seconds(at)) } }
	begin := func(at int) step { return func(v *visibility) { v.begin(seconds(at)) } }
	readFails := func(at int) step {
		return func(v *visibility) { v.failed(readRequest, errOutage, seconds(at)) }
	}
	writeFails := func(at int) step {
		return func(v *visibility) { v.failed(writeRequest, errOutage, seconds(at)) }
	}
	probeFails := func(v *visibility) { v.probeFailed(errOutage) }
	reads := func(at int) step { return func(v *visibility) { v.readSucceeded(seconds(at)) } }
	writes := func(at int) step { return func(v *visibility) { v.wrote(seconds(at)) } }
	behind := func(version string, at int) step { return func(v *visibility) { v.behind(version, seconds(at)) } }
	caughtUp := func(version string) step { return func(v *visibility) { v.caughtUp(version) } }
	listed := func(at int) step { return func(v *visibility) { v.listed(seconds(at), 0) } }
	listedIn := func(took, at int) step {
		return func(v *visibility) { v.listed(seconds(at), time.Duration(took)*time.Second) }
	}
	for _, tt := range []struct {
		name    string
		steps   []step
		at      int
		why     cause
		remedy  remedy
		credits []blindness
		stalls  bool // no tick since the term began
	}{
		{"events come in", []step{begin(0), event(10)}, 20, causeNone, noRemedy, nil, false},
		{"quiet for half a grace: ask", []step{begin(0), event(10)}, 36, causeNone, probe, nil, false},
		{"asked and answered: not blind", []step{begin(0), event(10), reads(36)}, 40, causeNone, noRemedy, nil, false},
		{"asked in vain: blind, and asks on", []step{begin(0), event(10), readFails(36)}, 37, causeBlind, probe, nil, false},
		{"blind since the last event", []step{begin(0), event(10), readFails(36), readFails(60), reads(80)}, 80, causeBlind, noRemedy, []blindness{{seconds(10), seconds(80)}}, false},
		{"an event ends it too", []step{begin(0), event(10), readFails(36), event(80)}, 80, causeBlind, noRemedy, []blindness{{seconds(10), seconds(80)}}, false},
		{"a failed write is not healed by a read", []step{begin(0), event(10), writeFails(36), reads(80)}, 80, causeBlind, probe, nil, false},
		{"but by a write", []step{begin(0), event(10), writeFails(36), writes(80)}, 80, causeBlind, noRemedy, []blindness{{seconds(10), seconds(80)}}, false},
		{"or by an event", []step{begin(0), event(10), writeFails(36), event(80)}, 80, causeBlind, noRemedy, []blindness{{seconds(10), seconds(80)}}, false},
		{"nor by a late one", []step{begin(0), event(10), writeFails(36), reads(87)}, 87, causeBlind, probe, nil, false},
		{"a standby cannot ask: a long quiet counts as blindness", []step{event(10), event(80)}, 80, causeBlind, noRemedy, []blindness{{seconds(10), seconds(80)}}, false},
		{"a standby with its events is not blind", []step{event(10), event(20), event(30), begin(40)}, 41, causeNone, noRemedy, nil, false},
		{"a standby that hears nothing and then leads", []step{event(10), begin(80)}, 81, causeBlind, noRemedy, []blindness{{seconds(10), seconds(80)}}, false},
		{"a cache that is behind", []step{begin(0), event(10), behind("20", 11)}, 12, causeStale, noRemedy, nil, false},
		{"a cache that has caught up", []step{begin(0), event(10), behind("20", 11), caughtUp("20")}, 12, causeNone, noRemedy, nil, false},
		{"a cache that has not", []step{begin(0), event(10), behind("20", 11), behind("30", 12), caughtUp("29")}, 13, causeStale, noRemedy, nil, false},
		{"an older target does not take the place of a newer", []step{begin(0), event(10), behind("30", 11), behind("20", 12), caughtUp("20")}, 13, causeStale, noRemedy, nil, false},
		{"behind for a grace: lists take over", []step{begin(0), event(60), behind("20", 11)}, 62, causeStale, relist, nil, false},
		{"listed: verdicts go on", []step{begin(0), event(60), behind("20", 11), listed(62)}, 65, causeNone, noRemedy, nil, false},
		{"and the next list is due", []step{begin(0), event(60), behind("20", 11), listed(62)}, 67, causeNone, relist, nil, false},
		{"the lists fail: suspended again", []step{begin(0), event(70), behind("20", 11), listed(62)}, 74, causeStale, relist, nil, false},
		{"stood still, and nobody has noticed yet", []step{begin(0), event(7)}, 7, causeBlind, noRemedy, nil, true},
		{"a late tick", []step{begin(0), event(6)}, 6, causeNone, noRemedy, nil, true},
		{"the list takes longer than a period: the next one is still on its way", []step{begin(0), event(70), behind("20", 11), listedIn(20, 80)}, 105, causeNone, relist, nil, false},
		{"writes fail, and Leases have been renewed", []step{begin(0), event(10), writeFails(20), writeFails(22)}, 23, causeNone, noRemedy, nil, false},
		{"writes fail after a quiet", []step{begin(0), event(10), writeFails(20), writeFails(36)}, 37, causeBlind, probe, nil, false},
		{"a read fails, and Leases have been renewed", []step{begin(0), event(10), readFails(20)}, 21, causeNone, noRemedy, nil, false},
		{"a read and the probe fail", []step{begin(0), event(10), readFails(20), probeFails}, 22, causeBlind, probe, nil, false},
		{"versions that cannot be compared are no reason to wait", []step{begin(0), event(10), behind("x", 11), caughtUp("20")}, 12, causeNone, noRemedy, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newVisibility(defaults(), day)
			for _, step := range tt.steps {
				step(v)
			}
			now := seconds(tt.at)
			if !tt.stalls {
				v.tick(now)
			}
			if got := v.suspended(false, now); got != tt.why {
				t.Errorf("suspended = %q, want %q", got, tt.why)
			}
			if got := v.suspended(true, now); got != causeNone && !tt.stalls {
				t.Errorf("a node that has been given all its time is held up: %q", got)
			}
			if got := v.remedy(now); got != tt.remedy {
				t.Errorf("remedy = %v, want %v", got, tt.remedy)
			}
			if diff := cmp.Diff(tt.credits, v.credits(), cmp.AllowUnexported(blindness{})); diff != "" {
				t.Errorf("credits (-want +got):\n%s", diff)
			}
			v.credited(len(tt.credits))
			if len(tt.credits) > 0 && v.suspended(false, now) != causeNone {
				t.Error("suspended although the credits were given")
			}
		})
	}
}

// Blind because writes failed: one verdict in a grace period is written all the same.
func TestTriesWrite(t *testing.T) {
	v := newVisibility(defaults(), day)
	v.begin(day)
	v.event(seconds(10))
	v.failed(writeRequest, errOutage, seconds(36))
	for _, tt := range []struct {
		name  string
		at    int
		claim bool
		want  bool
	}{
		{"a grace after the failure", 86, true, false},
		{"later", 87, false, true},
		{"nobody has claimed it", 87, true, true},
		{"one at a time", 87, true, false},
		{"a grace later", 138, true, true},
	} {
		v.tick(seconds(tt.at))
		if got := v.triesWrite(tt.claim, seconds(tt.at)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	v.wrote(seconds(201))
	v.tick(seconds(300))
	if v.triesWrite(true, seconds(300)) {
		t.Error("a write is tried after one has succeeded")
	}
}

func TestStandbyKeepsOneBlindness(t *testing.T) {
	v := newVisibility(defaults(), day)
	for i := 1; i <= 1000; i++ {
		v.event(seconds(30 * i))
	}
	want := []blindness{{seconds(0), seconds(30000)}}
	if diff := cmp.Diff(want, v.credits(), cmp.AllowUnexported(blindness{})); diff != "" {
		t.Errorf("credits (-want +got):\n%s", diff)
	}
}
