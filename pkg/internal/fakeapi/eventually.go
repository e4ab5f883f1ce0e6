package fakeapi

import (
	"testing"
	"time"
)

// Eventually polls check until it returns nil. After 20 s it ends the test with check's last error.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
