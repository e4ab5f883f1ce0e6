package fakeapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Must returns value. It panics if err is not nil.
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Want fails the test if a value is not the wanted value.
func Want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// WantError fails the test if an error neither is nor wraps the wanted error.
func WantError(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// WantPart fails the test if a text lacks a part.
func WantPart(t testing.TB, what, got, part string) {
	t.Helper()
	if !strings.Contains(got, part) {
		t.Errorf("%s lacks %q: %s", what, part, got)
	}
}

// WantEqual fails the test if a value differs from the wanted value, and shows the difference.
func WantEqual[T any](t testing.TB, what string, got, want T, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
