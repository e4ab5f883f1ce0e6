// Package leadership has leader election and decides when this process may write to the API server.
//
// Elector acquires, renews and releases the Lease, compatible with client-go's elector. Fence is the
// transport of the clients of controllers: a mutating request is sent only within a term, and ends on
// both sides of the connection before another process could hold the lease.
//
// A term is one uninterrupted period of holding the lease.
//
//	standby ─ acquire ─▶ term ─ lost ─▶ requests cancelled ─▶ controllers return ─▶ standby
//	                          ─ shutdown, step-down ─▶ controllers drain ─▶ writes complete ─▶ lease released
//
// A write without a conclusive response has an unknown outcome until its deadline on the API server.
// Until then the lease is not released, and this process begins no further term.
//
// While writes are slow, the lease is renewed for longer.
//
// All deadlines use the monotonic clock of this process, never times that other processes wrote.
package leadership
