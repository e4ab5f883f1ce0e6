// Package leadership decides when this process may write to the API server.
//
// Elector acquires, renews and releases the Lease. It is compatible with client-go's elector. Fence is
// the transport of every client that writes: a mutating request is sent only within a term, and ends
// on both sides of the connection before another process could hold the lease.
//
// A term is one uninterrupted period of holding the lease. A request belongs to the term of its
// context.
//
//	standby ─ acquire ─▶ term ─ lost ─▶ requests cancelled ─▶ controllers return ─▶ standby
//	                          ─ shutdown, step-down ─▶ controllers drain ─▶ writes complete ─▶ lease released
//
// A write without a conclusive response has an unknown outcome until the deadline that the API server
// was given. Until then the lease is not released, and this process begins no further term.
//
// While writes are slow, the lease is renewed for a longer duration.
//
// All deadlines use the monotonic clock of this process. Times that other processes wrote are never
// compared with this clock.
package leadership
