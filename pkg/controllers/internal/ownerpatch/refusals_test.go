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
	object := func(uid types.UID, version string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{UID: uid, ResourceVersion: version, Labels: map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{{UID: "owner", Controller: new(true)}}}
	}
	for uid, ago := range map[types.UID]time.Duration{
		"refused": 0, "refused-before": 59 * time.Second, "over": time.Minute, "gone": 0, "relabelled": 0, "disowned": 0, "deleted": 0,
	} {
		if wait := r.Note(object(uid, "4"), now.Add(-ago)); wait != time.Minute {
			t.Errorf("left alone for %v, want a minute", wait)
		}
	}
	var there []metav1.Object
	for _, uid := range []types.UID{"refused-before", "refused", "over", "relabelled", "disowned", "deleted", "other"} {
		object := object(uid, "5")
		switch uid {
		case "relabelled":
			object.Labels["app"] = "db"
		case "disowned":
			*object.OwnerReferences[0].Controller = false
		case "deleted":
			object.DeletionTimestamp = &metav1.Time{Time: now}
		}
		there = append(there, object)
	}
	Forget(r, there)
	if left := slices.Sorted(maps.Keys(r)); !slices.Equal(left, []types.UID{"over", "refused", "refused-before"}) {
		t.Errorf("refusals left: %v; want those of objects that are there and of which only the version has changed", left)
	}
	rest, again := Admitted(r, there, now)
	var admitted []types.UID
	for _, object := range rest {
		admitted = append(admitted, object.GetUID())
	}
	if want := []types.UID{"over", "relabelled", "disowned", "deleted", "other"}; !slices.Equal(admitted, want) || again != time.Second {
		t.Errorf("admitted %v, again after %v; want %v, 1s", admitted, again, want)
	}
}
