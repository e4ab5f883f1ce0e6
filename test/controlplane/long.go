package controlplane

import (
	"os"
	"testing"
)

// SkipUnlessLong skips a test that is too slow for every change, unless the environment variable LONG is set, as by
// `make test-long`.
func SkipUnlessLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("runs with make test-long")
	}
}

// Long reports whether the environment variable LONG is set.
func Long() bool { return os.Getenv("LONG") != "" }
