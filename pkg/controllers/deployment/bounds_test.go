package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestBounds(t *testing.T) {
	number := func(n int) *intstr.IntOrString { return new(intstr.FromInt(n)) }
	text := func(s string) *intstr.IntOrString { return new(intstr.FromString(s)) }
	for _, tt := range []struct {
		name               string
		replicas           int32
		surge, unavailable *intstr.IntOrString
		want               bounds
	}{
		{"numbers", 10, number(3), number(2), bounds{10, 3, 2}},
		{"percentages: surge is rounded up, unavailability down", 10, text("25%"), text("25%"), bounds{10, 3, 2}},
		{"nothing is missing: nothing", 10, nil, number(2), bounds{10, 0, 2}},
		{"nothing said: one may be unavailable", 10, nil, nil, bounds{10, 0, 1}},
		{"both come to nothing", 2, number(0), text("1%"), bounds{2, 0, 1}},
		{"both come to nothing for one pod", 1, number(0), text("25%"), bounds{1, 0, 1}},
		{"one surges", 1, text("25%"), text("25%"), bounds{1, 1, 0}},
		{"no more may be unavailable than there are", 5, number(0), number(50), bounds{5, 0, 5}},
		{"all may be", 5, number(1), text("100%"), bounds{5, 1, 5}},
		{"no replicas", 0, number(1), number(1), bounds{0, 1, 0}},
		{"no replicas, both nothing", 0, number(0), number(0), bounds{0, 0, 0}},
		{"text that is no percentage is nothing", 10, text("oops"), number(2), bounds{10, 0, 2}},
		{"negative is nothing", 10, number(-3), number(-2), bounds{10, 0, 1}},
		{"a huge surge", 1 << 30, text("100%"), number(0), bounds{1 << 30, 1 << 30, 0}},
	} {
		d := newDeployment(tt.replicas)
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: tt.surge, MaxUnavailable: tt.unavailable}
		if got := boundsOf(d); got != tt.want {
			t.Errorf("%s: bounds %+v, want %+v", tt.name, got, tt.want)
		}
		recreating(d)
		if got, want := boundsOf(d), (bounds{replicas: int(tt.replicas)}); got != want {
			t.Errorf("%s: with the strategy Recreate bounds %+v, want %+v", tt.name, got, want)
		}
	}
	d := newDeployment(0)
	d.Spec.Replicas = nil
	if got, want := boundsOf(d), (bounds{1, 0, 1}); got != want {
		t.Errorf("without replicas bounds %+v, want %+v", got, want)
	}
}
