package rv

import "testing"

func TestOrder(t *testing.T) {
	for _, tt := range []struct {
		name                       string
		a, b                       string
		newer, atLeast, mayBeNewer bool
	}{
		{"older", "9", "10", false, false, false},
		{"equal", "10", "10", false, true, false},
		{"newer", "10", "9", true, true, true},
		{"no version", "", "9", false, false, true},
		{"no version to compare with", "9", "", false, false, true},
		{"not a number", "x", "9", false, false, true},
	} {
		newer, atLeast, mayBeNewer := Newer(tt.a, tt.b), AtLeast(tt.a, tt.b), MayBeNewer(tt.a, tt.b)
		if newer != tt.newer || atLeast != tt.atLeast || mayBeNewer != tt.mayBeNewer {
			t.Errorf("%s: newer %v, at least %v, may be newer %v, want %v, %v and %v", tt.name, newer, atLeast, mayBeNewer, tt.newer, tt.atLeast, tt.mayBeNewer)
		}
	}
}
