// Package hooks adds connection hooks to the requests of a context.
package hooks

import (
	"context"
	"net/http/httptrace"
)

// WithConnections returns ctx with hooks that run before the hooks that ctx has.
// It stands in for httptrace.WithClientTrace, which composes hooks by reflection.
func WithConnections(ctx context.Context, getConn func(string), gotConn func(httptrace.GotConnInfo)) context.Context {
	var trace httptrace.ClientTrace
	if outer := httptrace.ContextClientTrace(ctx); outer != nil {
		trace, ctx = *outer, untraced{ctx, outer}
	}
	trace.GetConn, trace.GotConn = sequence(getConn, trace.GetConn), sequence(gotConn, trace.GotConn)
	return httptrace.WithClientTrace(ctx, &trace)
}

func sequence[T any](first, second func(T)) func(T) {
	if second == nil {
		return first
	}
	return func(v T) { first(v); second(v) }
}

// untraced hides a trace of its parent.
type untraced struct {
	context.Context
	trace *httptrace.ClientTrace
}

func (c untraced) Value(key any) any {
	if v := c.Context.Value(key); v != any(c.trace) {
		return v
	}
	return nil
}
