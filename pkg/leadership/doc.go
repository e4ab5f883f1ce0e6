// Package leadership decides when this process may write, and makes sure it writes at no other time.
//
// Two parts work together, and nothing here knows caches or controllers:
//
//   - Elector holds the lease, in the form and by the rules of client-go's elector, which may compete with it. Because it knows when each
//     renewal was sent, and what everybody else wrote, a standby takes a released lease at once and an expired
//     one at the instant it expires, and a leader stops as soon as it sees another holder.
//   - Fence is the transport under every client that writes. A mutating request is sent only inside a term
//     and ends, on both sides of the wire, before another process could hold the lease.
//
// Whoever finds that this process sees too little tells the Elector to step down; package freshness does.
//
// A term is one uninterrupted holding of the lease by this process. Terms never overlap, and a request
// belongs to the term whose context it carries: it is never carried into the next.
//
//	standby ─ win ─▶ term ─ lose ─▶ fence ends hard ─▶ controllers joined ─▶ standby
//	                      ─ shutdown, step down ─▶ controllers drained ─▶ fence closed ─▶ settled ─▶ lease released
//
// # Unknown outcomes
//
// A write that was sent and ended without an answer that proves anything (cut, timed out, reset, 5xx) may still be done until the deadline
// the API server was given. The term is settled when no such write is left. Until then the lease is not released, and this process does not
// lead again. If that takes longer than the shutdown timeout allows, nobody waits for it: the last renewal is for just so long, and
// the lease expires when the last of those writes cannot be done any more.
//
// # Patience
//
// With a lease of 15 s a write has 11.5 s; the API server gives it 34 s, and admission may need them. When a write takes more than half of
// what it has, the lease is renewed for 45 s, and once that is confirmed, writes have 34 s. The one that showed it is ended on time all the
// same and has to be repeated. Half a minute after the last slow write, writes have 11.5 s again; when the deadlines of earlier ones
// have come so near that the short lease covers them, that is renewed. The price: after a crash in between, nobody leads for up to 45 s.
//
// # Time
//
// All arithmetic uses this process's monotonic clock and starts at local observations: times written by
// others are never compared with it. A jump of the wall clock therefore changes nothing. The clock of a
// paused virtual machine stops with the machine; what a leader does in the moment after such a pause,
// before it learns of its successor, only preconditions (UID, resourceVersion, fixed names) can stop. The
// same holds for bytes that had left this machine, or lay in a socket of a stopped process: the timeout the
// server was given counts from their arrival. What a term left unacknowledged in a socket is dropped with it.
package leadership
