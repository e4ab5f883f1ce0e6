package enqueue

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
)

func TestSelects(t *testing.T) {
	app := map[string]string{"app": "web"}
	web := &metav1.LabelSelector{MatchLabels: app}
	for _, tt := range []struct {
		name     string
		selector *metav1.LabelSelector
		labels   map[string]string
		want     bool
	}{
		{"matching", web, app, true},
		{"more labels than asked for", web, map[string]string{"app": "web", "more": "x"}, true},
		{"an object without labels matches none", &metav1.LabelSelector{}, nil, false},
		{"an empty selector matches none", &metav1.LabelSelector{}, app, false},
		{"an invalid selector matches none", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "?!"}}, app, false},
	} {
		fakeapi.Want(t, tt.name, selectorMatches(tt.selector, tt.labels), tt.want)
	}
}
