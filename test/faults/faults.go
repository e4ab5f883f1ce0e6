package faults

import (
	"net/http"
	"time"
)

// Fault is what happens to one request. The zero Fault is none.
type Fault struct {
	name       string
	refusal    *refusal      // answered by the proxy, never forwarded
	wait       time.Duration // before forwarding
	before     *Gate         // passed before forwarding
	after      *Gate         // passed when the server's answer has begun to arrive
	answerWait time.Duration // between the server's answer and ours
	late       bool          // the client is cut after giveUp
	giveUp     time.Duration
	drop       bool // the client is cut instead of answered

	hiddenGroup string // see HideGroup
}

// detaches tells whether the request must reach the server even if its client is gone.
func (f Fault) detaches() bool { return f.drop || f.late || f.before != nil || f.after != nil }

// DropAnswer lets the request go through completely, then resets the client's stream: it was committed, the
// client does not know. The request reaches the server even if the client leaves in the meantime.
func DropAnswer() Fault { return Fault{name: "drop answer", drop: true} }

// LateCommit resets the client's stream after giveUp (0: at once) and forwards the request only commitAfter later:
// nothing the client does can stop it. A client that leaves earlier by its own deadline changes nothing.
func LateCommit(giveUp, commitAfter time.Duration) Fault {
	return Fault{name: "late commit", late: true, giveUp: giveUp, wait: giveUp + commitAfter}
}

// Refuse answers with the status code and a metav1.Status body as the API server's, without forwarding.
func Refuse(code int) Fault { return Fault{name: "refuse", refusal: &refusal{code: code}} }

// RefuseRetryAfter is Refuse with a Retry-After header, rounded up to seconds. client-go obeys it on 429 and 5xx
// by sending the request again, up to ten times.
func RefuseRetryAfter(code int, after time.Duration) Fault {
	return Fault{name: "refuse", refusal: &refusal{code: code, retryAfter: after}}
}

// BadGateway answers with the status code and a page of HTML, as a load balancer does that has no server to ask: 502, 503 or 504.
func BadGateway(code int) Fault {
	return Fault{name: "bad gateway", refusal: &refusal{code: code, html: true}}
}

// UnknownPath answers as an API server does that does not know the type: 404 in plain text, about no object.
func UnknownPath() Fault {
	return Fault{name: "unknown path", refusal: &refusal{code: http.StatusNotFound, plain: true}}
}

// DelayRequest forwards the request d later, unless its client has left by then.
func DelayRequest(d time.Duration) Fault { return Fault{name: "delay request", wait: d} }

// DelayAnswer passes the server's answer on d later. A write is committed all the while.
func DelayAnswer(d time.Duration) Fault { return Fault{name: "delay answer", answerWait: d} }

// Hold keeps the request at the gate before it is forwarded. A released request (watches excepted) is forwarded even
// if its client has left: a late commit at the moment the test chooses.
func Hold(g *Gate) Fault { return Fault{name: "hold", before: g} }

// HoldAnswer keeps the server's answer at the gate: the write is committed, its client does not know yet.
func HoldAnswer(g *Gate) Fault { return Fault{name: "hold answer", after: g} }
