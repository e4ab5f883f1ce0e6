package faults

import (
	"time"
)

// Fault is an effect on a request. The zero Fault has no effect.
type Fault struct {
	name       string
	refusal    *refusal
	wait       time.Duration // before forwarding
	before     *Gate         // passed before forwarding
	after      *Gate
	answerWait time.Duration
	late       bool // the client is cut at once
	drop       bool

	hiddenGroup string // see HideGroup
}

func (f Fault) isDetached() bool { return f.drop || f.late || f.before != nil || f.after != nil }

// DropAnswer forwards the request and then resets the client's stream: the write is committed, and the client does not
// know. The request reaches the server even if the client has left.
func DropAnswer() Fault { return Fault{name: "drop answer", drop: true} }

// LateCommit resets the client's stream at once and forwards the request d later. The client cannot stop the request.
func LateCommit(d time.Duration) Fault { return Fault{name: "late commit", late: true, wait: d} }

// Refuse returns the status code and a metav1.Status as the API server does, without forwarding the request.
func Refuse(code int) Fault { return Fault{name: "refuse", refusal: &refusal{code: code}} }

// RefuseRetryAfter is Refuse with a Retry-After header, rounded up to seconds. After 429 and 5xx client-go repeats the
// request up to ten times.
func RefuseRetryAfter(code int, after time.Duration) Fault {
	return Fault{name: "refuse", refusal: &refusal{code: code, retryAfter: after}}
}

// BadGateway returns the status code and a page of HTML, as a load balancer without servers does: 502, 503 or 504.
func BadGateway(code int) Fault {
	return Fault{name: "bad gateway", refusal: &refusal{code: code, html: true}}
}

// DelayRequest forwards the request d later, unless the client has left.
func DelayRequest(d time.Duration) Fault { return Fault{name: "delay request", wait: d} }

// DelayAnswer delays the response by d. A write is committed meanwhile.
func DelayAnswer(d time.Duration) Fault { return Fault{name: "delay answer", answerWait: d} }

// Hold keeps the request at the gate before the server. A released request, except a watch, is forwarded even if the
// client has left.
func Hold(g *Gate) Fault { return Fault{name: "hold", before: g} }

// HoldAnswer keeps the response at the gate: the write is committed, and the client does not know yet.
func HoldAnswer(g *Gate) Fault { return Fault{name: "hold answer", after: g} }
