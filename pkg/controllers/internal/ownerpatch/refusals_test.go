package ownerpatch

import (
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRefusals(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var r Refusals
	for uid, refused := range map[types.UID]struct {
		version string
		ago     time.Duration
	}{
		"refused": {"5", 0}, "refused-before": {"5", 59 * time.Second}, "over": {"5", time.Minute}, "changed": {"4", 0}, "gone": {"5", 0},
	} {
		if wait := r.Note(uid, refused.version, now.Add(-refused.ago)); wait != time.Minute {
			t.Errorf("left alone for %v, want a minute", wait)
		}
	}
	var there []metav1.Object
	for _, uid := range []types.UID{"refused-before", "refused", "over", "changed", "other"} {
		there = append(there, &metav1.ObjectMeta{UID: uid, ResourceVersion: "5"})
	}
	Forget(r, there)
	if left := slices.Sorted(maps.Keys(r)); !slices.Equal(left, []types.UID{"over", "refused", "refused-before"}) {
		t.Errorf("refusals left: %v; want those of objects that are there and have not changed", left)
	}
	rest, again := Admitted(r, there, now)
	var admitted []types.UID
	for _, object := range rest {
		admitted = append(admitted, object.GetUID())
	}
	if want := []types.UID{"over", "changed", "other"}; !slices.Equal(admitted, want) || again != time.Second {
		t.Errorf("admitted %v, again after %v; want %v, 1s", admitted, again, want)
	}
}
