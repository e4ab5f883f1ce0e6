package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/fakeapi"
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
	return Versions{pods.resource: podVersion, sets.resource: setVersion}
}

func object(uid, version string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}
}

// readiness is a result of EnsureReady.
type readiness string

const (
	ready   readiness = "ready"
	behind  readiness = "behind"
	overdue readiness = "overdue"
)

func readinessOf(b *ConsistencyBarrier, at Versions, now time.Time) (readiness, []schema.GroupResource) {
	late, err := b.EnsureReady(at, now)
	notReady := (*NotReadyError)(nil)
	switch {
	case errors.As(err, &notReady):
		slices.SortFunc(notReady.Missing, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
		return behind, notReady.Missing
	case late:
		return overdue, nil
	}
	return ready, nil
}

func TestEnsureReady(t *testing.T) {
	for _, tt := range []struct {
		name      string
		pod, set  string // written
		at        Versions
		waitedFor time.Duration
		want      readiness
		missing   []schema.GroupResource
	}{
		{"nothing written", "", "", at("1", "1"), 0, ready, nil},
		{"pods behind", "100", "", at("99", "200"), 0, behind, []schema.GroupResource{pods.resource}},
		{"ReplicaSets behind", "", "100", at("200", "99"), 0, behind, []schema.GroupResource{sets.resource}},
		{"both behind", "100", "100", at("99", "99"), 0, behind, []schema.GroupResource{pods.resource, sets.resource}},
		{"both reached", "100", "100", at("100", "100"), 0, ready, nil},
		{"both past", "9", "9", at("10", "1000"), 0, ready, nil},
		{"just before the timeout", "100", "", at("99", "1"), ConsistencyTimeout - 1, behind, []schema.GroupResource{pods.resource}},
		{"timeout", "100", "", at("99", "1"), ConsistencyTimeout, overdue, nil},
		{"cache without a version", "100", "", at("", "1"), 0, overdue, nil},
		{"version that is no number", "100", "", at("abc", "1"), 0, overdue, nil},
	} {
		var b ConsistencyBarrier
		began := now.Add(-tt.waitedFor)
		b.RequireVersion(pods, tt.pod, began)
		b.RequireVersion(sets, tt.set, began)
		fakeapi.Want(t, tt.name+": pending after the writes", b.Pending(), tt.pod+tt.set != "")
		readinessOf(&b, at("0", "0"), began)
		if got, missing := readinessOf(&b, tt.at, now); got != tt.want || !slices.Equal(missing, tt.missing) {
			t.Errorf("%s: %s, missing %v; want %s, %v", tt.name, got, missing, tt.want, tt.missing)
		}
		fakeapi.Want(t, tt.name+": pending", b.Pending(), tt.want != ready)
	}
}

// TestEnsureReadyOverTime: the timeout counts from the first write, lasts until a live read and starts again after the
// read. The last write of a sync that took longer than the timeout is not overdue at once.
func TestEnsureReadyOverTime(t *testing.T) {
	type step struct {
		after time.Duration
		pods  string
		want  readiness
	}
	var b, long ConsistencyBarrier
	check := func(b *ConsistencyBarrier, since time.Time, steps ...step) {
		t.Helper()
		for _, s := range steps {
			if got, _ := readinessOf(b, at(s.pods, "1"), since.Add(s.after)); got != s.want {
				t.Errorf("after %v, pods at %s: %s, want %s", s.after, s.pods, got, s.want)
			}
		}
	}
	pods := &fakeCache{resource: pods.resource}
	for i, version := range []string{"50", "100", "", "70"} {
		b.RequireVersion(pods, version, now.Add(time.Duration(i)*time.Second))
	}
	fakeapi.WantEqual(t, "versions that were announced to the cache", pods.expected, []string{"50", "100", "70"})
	check(&b, now, step{4 * time.Second, "99", behind}, step{29 * time.Second, "99", behind},
		step{ConsistencyTimeout, "99", overdue}, step{ConsistencyTimeout + time.Second, "99", overdue})
	read := now.Add(time.Minute)
	RecordLiveRead(&b, sets, object("set", "1"), pods, []*metav1.ObjectMeta{object("a", "100")}, "250", read)
	check(&b, read, step{0, "99", behind}, step{ConsistencyTimeout - 1, "99", behind},
		step{ConsistencyTimeout, "99", overdue}, step{ConsistencyTimeout, "100", ready})
	long.RequireVersion(pods, "100", now)
	check(&long, now, step{31 * time.Second, "99", behind}, step{31*time.Second + ConsistencyRecheck - 1, "99", behind},
		step{31*time.Second + ConsistencyRecheck, "99", overdue})
}

func TestRecordLiveRead(t *testing.T) {
	listed := []*metav1.ObjectMeta{object("a", "30"), object("b", "39")}
	for _, tt := range []struct {
		name           string
		pod, set, list string // written before, and the version of the list
		at             Versions
		want           readiness
	}{
		{"caches show what was read", "", "", "44", at("39", "40"), ready},
		{"pods behind", "", "", "44", at("38", "40"), behind},
		{"ReplicaSets behind", "", "", "44", at("39", "39"), behind},
		{"earlier writes still count", "42", "", "44", at("41", "40"), behind},
		{"a list without a comparable version proves nothing", "1000", "", "abc", at("39", "40"), behind},
	} {
		var b ConsistencyBarrier
		b.RequireVersion(pods, tt.pod, now)
		b.RequireVersion(sets, tt.set, now)
		RecordLiveRead(&b, sets, object("set", "40"), pods, listed, tt.list, now)
		got, _ := readinessOf(&b, tt.at, now)
		fakeapi.Want(t, tt.name, got, tt.want)
	}
}

// TestDeletedBeforeList: after a live read a cache may still show objects that are gone, and may even receive
// objects that are gone.
func TestDeletedBeforeList(t *testing.T) {
	cached := []*metav1.ObjectMeta{object("listed", "30"), object("removed", "20"), object("newer", "60")}
	for version, want := range map[string][]bool{"49": {false, true, false}, "50": {false, false, false}} {
		var b ConsistencyBarrier
		RecordLiveRead(&b, sets, object("set", "1"), pods, []*metav1.ObjectMeta{object("listed", "30")}, "50", now)
		readinessOf(&b, at(version, "1"), now)
		for i, o := range cached {
			fakeapi.Want(t, fmt.Sprintf("cache at %s: deletion of %s", version, o.UID), b.DeletedBeforeList(o), want[i])
		}
	}
}

func TestLoadConsistent(t *testing.T) {
	failed := errors.New("failed")
	wrote := func(b *ConsistencyBarrier) { b.RequireVersion(pods, "100", now.Add(-time.Hour)) }
	waited := func(b *ConsistencyBarrier) {
		wrote(b)
		readinessOf(b, at("99", "1"), now.Add(-time.Minute))
	}
	verified := func(b *ConsistencyBarrier) {
		RecordLiveRead(b, sets, object("set", "1"), pods, []*metav1.ObjectMeta{}, "1", now)
	}
	for _, tt := range []struct {
		name        string
		before      func(*ConsistencyBarrier)
		baseline    Versions
		writes      bool
		unconfirmed bool
		fails       string // step that returns an error
		want        []string
	}{
		{"nothing to write", nil, at("200", "1"), false, false, "", []string{"cached", "decide"}},
		{"first write behind the baseline", nil, at("200", "1"), true, false, "", []string{"cached", "decide", "live", "decide"}},
		{"first write past the baseline", nil, at("50", "1"), true, false, "", []string{"cached", "decide"}},
		{"later write", verified, at("200", "1"), true, false, "", []string{"cached", "decide"}},
		{"unconfirmed", nil, at("50", "1"), true, true, "", []string{"cached", "decide", "live", "decide"}},
		{"caches behind", wrote, nil, true, false, "", []string{}},
		{"caches overdue", waited, nil, true, false, "", []string{"live", "decide"}},
		{"decision fails", nil, nil, true, false, "decide", []string{"cached", "decide"}},
		{"live read fails", nil, nil, true, false, "live", []string{"cached", "decide", "live"}},
	} {
		calls := []string{}
		step := func(name string) error {
			calls = append(calls, name)
			if name == tt.fails {
				return failed
			}
			return nil
		}
		var baseline Baseline
		if tt.baseline != nil {
			baseline.versions.Store(&tt.baseline)
		}
		loader := Loader[int, string]{
			Baseline:    &baseline,
			Cached:      func(in int) int { step("cached"); return in + 1 },
			Live:        func(_ context.Context, in int) (int, error) { return in + 10, step("live") },
			Decide:      func(_ context.Context, in int) (string, error) { return fmt.Sprint(in), step("decide") },
			Writes:      func(int, string) bool { return tt.writes },
			Unconfirmed: func(int, string) bool { return tt.unconfirmed },
		}
		var b ConsistencyBarrier
		if tt.before != nil {
			tt.before(&b)
		}
		in, decision, err := loader.LoadConsistent(t.Context(), &b, at("99", "1"), now, 0)
		fakeapi.WantEqual(t, tt.name+": steps", calls, tt.want)
		switch notReady := (*NotReadyError)(nil); {
		case tt.fails != "":
			fakeapi.WantError(t, tt.name+": error", err, failed)
		case len(tt.want) == 0:
			if !errors.As(err, &notReady) {
				t.Errorf("%s: error %v", tt.name, err)
			}
		case err != nil || decision != fmt.Sprint(in):
			t.Errorf("%s: decision %q on %d, error %v", tt.name, decision, in, err)
		}
	}
}
