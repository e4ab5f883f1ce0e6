package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAuditLog(t *testing.T) {
	const text = `{"stage":"ResponseComplete","verb":"create","user":{"username":"a"},"responseStatus":{"code":409},"stageTimestamp":"2026-01-01T00:00:01.000000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"username":"a"},"responseStatus":{"code":201},"stageTimestamp":"2026-01-01T00:00:03.000000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"username":"a"},"responseStatus":{"code":201},"stageTimestamp":"2026-01-01T00:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"watch","user":{"username":"a"},"responseStatus":{"code":200},"stageTimestamp":"2026-01-01T00:00:04.000000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"username":"b"},"responseStatus":{"code":201},"stageTimestamp":"2026-01-01T00:00:00.000000Z"}
{"stage":"ResponseComplete","verb":"cre`
	log := auditLog(filepath.Join(t.TempDir(), "audit.log"))
	if err := os.WriteFile(string(log), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := log.where(requestsOf("a"))
	if err != nil || len(events) != 3 {
		t.Fatalf("requests of a: %d, %v, want 3: not the watch, not b's, not the line still being written", len(events), err)
	}
	if n := len(withCode(events, 409)); n != 1 {
		t.Errorf("answered 409: %d, want 1", n)
	}
	if got, want := earliest(withCode(events, 201)), time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC); !got.Equal(want) {
		t.Errorf("earliest create is at %v, want %v, though another was logged before", got, want)
	}
}
