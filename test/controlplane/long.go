package controlplane

import (
	"os"
	"testing"
)

// SkipUnlessLong skips a test that takes too long for every change, unless the environment variable LONG is set, as `make test-long` does.
func SkipUnlessLong(t testing.TB) {
	t.Helper()
	if os.Getenv("LONG") == "" {
		t.Skip("runs with make test-long")
	}
}

// Long reports whether the environment variable LONG is set. A test does not depend on it: what is too long is a test or subtest of its own.
func Long() bool { return os.Getenv("LONG") != "" }
