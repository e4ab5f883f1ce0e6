package hooks

import (
	"context"
	"net/http/httptrace"
	"slices"
	"testing"
)

func TestOuterHooksAreCalled(t *testing.T) {
	var calls []string
	get := func(name string) func(string) { return func(string) { calls = append(calls, name+" get") } }
	got := func(name string) func(httptrace.GotConnInfo) {
		return func(httptrace.GotConnInfo) { calls = append(calls, name+" got") }
	}
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: get("sync"), GotFirstResponseByte: func() { calls = append(calls, "sync answered") },
	})
	ctx = WithConnections(ctx, get("write"), got("write"))
	ctx = WithConnections(ctx, get("flight"), got("flight"))

	trace := httptrace.ContextClientTrace(ctx)
	trace.GetConn("")
	trace.GotConn(httptrace.GotConnInfo{})
	trace.GotFirstResponseByte()
	want := []string{"flight get", "write get", "sync get", "flight got", "write got", "sync answered"}
	if !slices.Equal(calls, want) {
		t.Errorf("hooks called: %q, want %q", calls, want)
	}
	if ctx.Value(key{}) != "kept" {
		t.Error("the context lost a value")
	}
	if cancel(); ctx.Err() == nil {
		t.Error("the context does not end with its parent")
	}
}
