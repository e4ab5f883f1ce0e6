package faults

import (
	"net/http"
	"sync"
	"time"
)

// Request is one request the proxy has seen. Those swallowed by a black hole or a refused connection are not seen.
type Request struct {
	Time      time.Time // arrival
	Proto     string    // spoken by the client: "HTTP/2.0" or "HTTP/1.1"
	Method    string
	Path      string
	Query     string // raw
	UserAgent string
	Verb      string // as Match.Verbs
	Resource  string // with the subresource: "pods/status"; "" outside the API
	Namespace string
	Name      string
	Fault     string // what the script did to it; "" nothing
	Forwarded bool   // sent on to the server
	Code      int    // the server's status code, or that of a refusal; 0: none yet
	Answered  bool   // the answer was passed on whole; for a watch: its header was
}

// journal is the list of requests seen.
type journal struct {
	lock sync.Mutex
	all  []*Request
}

func (j *journal) begin(r *http.Request, i info, fault string) *entry {
	q := &Request{
		Time: time.Now(), Proto: r.Proto, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, UserAgent: r.UserAgent(),
		Verb: i.verb, Resource: i.fullResource(), Namespace: i.namespace, Name: i.name, Fault: fault,
	}
	j.lock.Lock()
	defer j.lock.Unlock()
	j.all = append(j.all, q)
	return &entry{journal: j, request: q}
}

func (j *journal) requests() []Request {
	j.lock.Lock()
	defer j.lock.Unlock()
	all := make([]Request, 0, len(j.all))
	for _, q := range j.all {
		all = append(all, *q)
	}
	return all
}

// entry is the line of one request.
type entry struct {
	journal *journal
	request *Request
}

func (e *entry) edit(change func(*Request)) {
	e.journal.lock.Lock()
	defer e.journal.lock.Unlock()
	change(e.request)
}

func (e *entry) forwarded()    { e.edit(func(q *Request) { q.Forwarded = true }) }
func (e *entry) answered()     { e.edit(func(q *Request) { q.Answered = true }) }
func (e *entry) code(code int) { e.edit(func(q *Request) { q.Code = code }) }

func (e *entry) snapshot() Request {
	e.journal.lock.Lock()
	defer e.journal.lock.Unlock()
	return *e.request
}
