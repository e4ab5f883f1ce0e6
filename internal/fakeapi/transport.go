package fakeapi

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// RoundTripper is an http.RoundTripper that calls the function.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// WriteFile writes a file that the end of the test removes, and returns the path.
func WriteFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	NoError(t, os.WriteFile(file, content, 0o600))
	return file
}
