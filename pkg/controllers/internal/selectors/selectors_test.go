package selectors

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"minikcm/internal/fakeapi"
)

func TestSelectors(t *testing.T) {
	in := metav1.LabelSelectorRequirement{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}
	for _, tt := range []struct {
		name      string
		selector  *metav1.LabelSelector
		want      string // as in a list request
		all, fail bool
	}{
		{"missing", nil, "", false, true},
		{"empty", &metav1.LabelSelector{}, "", true, true},
		{"expressions", &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}, MatchExpressions: []metav1.LabelSelectorRequirement{in}}, "a=1,b=2,tier in (a,b)", false, false},
		{"an operator that there is not", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}, "", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseSelector(tt.selector)
			if (err != nil) != tt.fail || errors.Is(err, ErrAll) != tt.all {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				return
			}
			fakeapi.Want(t, "selector", got.String(), tt.want)
			checked := fakeapi.Must(metav1.LabelSelectorAsSelector(tt.selector))
			for _, l := range []labels.Set{{}, {"a": "1"}, {"a": ""}, {"a": "1", "b": "2"}, {"a": "1", "tier": "b"}, {"tier": "a"}} {
				if got.Matches(l) != checked.Matches(l) {
					t.Errorf("labels %v: %t, want %t as apimachinery", l, got.Matches(l), checked.Matches(l))
				}
			}
		})
	}
}
