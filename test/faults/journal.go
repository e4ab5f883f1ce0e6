package faults

import (
	"net/http"
	"sync"
	"time"
)

// Request is a request that the proxy has received. Requests in an outage are not received.
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
	Fault     string // "": none
	Forwarded bool   // sent on to the server
	Code      int    // 0: no response yet
	Answered  bool   // the whole response was forwarded; for a watch: the header
}

// journal is the list of requests seen.
type journal struct {
	lock sync.Mutex
	all  []*Request
}

func (j *journal) addRequest(r *http.Request, i info, fault string) *entry {
	q := &Request{
		Time: time.Now(), Proto: r.Proto, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, UserAgent: r.UserAgent(),
		Verb: i.verb, Resource: i.fullResource(), Namespace: i.namespace, Name: i.name, Fault: fault,
	}
	j.lock.Lock()
	defer j.lock.Unlock()
	j.all = append(j.all, q)
	return &entry{journal: j, request: q}
}

func (j *journal) allRequests() []Request {
	j.lock.Lock()
	defer j.lock.Unlock()
	all := make([]Request, 0, len(j.all))
	for _, q := range j.all {
		all = append(all, *q)
	}
	return all
}

type entry struct {
	journal *journal
	request *Request
}

func (e *entry) editRequest(change func(*Request)) {
	e.journal.lock.Lock()
	defer e.journal.lock.Unlock()
	change(e.request)
}

func (e *entry) markForwarded()   { e.editRequest(func(q *Request) { q.Forwarded = true }) }
func (e *entry) markAnswered()    { e.editRequest(func(q *Request) { q.Answered = true }) }
func (e *entry) setCode(code int) { e.editRequest(func(q *Request) { q.Code = code }) }

func (e *entry) copyRequest() Request {
	e.journal.lock.Lock()
	defer e.journal.lock.Unlock()
	return *e.request
}
