package caches

import "testing"

func TestHighest(t *testing.T) {
	for _, tt := range []struct {
		name     string
		versions []string
		want     string
	}{
		{"none", nil, ""},
		{"the first", []string{"7"}, "7"},
		{"a higher one", []string{"9", "10"}, "10"},
		{"a lower one", []string{"10", "9"}, "10"},
		{"what is no version", []string{"", "0", "abc", "7", "", "0", "abc"}, "7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h highest
			for _, v := range tt.versions {
				h.raiseTo(v)
			}
			if got := h.get(); got != tt.want {
				t.Errorf("highest of %q = %q, want %q", tt.versions, got, tt.want)
			}
		})
	}
}
