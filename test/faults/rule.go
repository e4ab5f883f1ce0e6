package faults

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Writes names every verb that changes something, for Match.Verbs.
const Writes = "create,update,patch,delete,deletecollection"

// Match selects requests. A zero field matches every request.
type Match struct {
	// Verbs is a comma-separated list of API verbs: get, list, watch, create, update, patch, delete,
	// deletecollection. A streaming list is a watch, as for the API server.
	Verbs string
	// Resource is a comma-separated list of plurals as in RBAC rules: "pods" is the object, "pods/status" a
	// subresource, "pods/*" the object and all subresources.
	Resource string
	// Namespace is the namespace in the path, also for requests about the namespace object.
	Namespace string
	// Name is the object's name, in the path or in a field selector.
	Name string
	// UserAgent is any part of the User-Agent header.
	UserAgent string
	// PathPrefix is the start of the URL path, "/apis/apps/" for instance.
	PathPrefix string
	// When is evaluated last, under a lock. When must not block, call the proxy or read the body.
	When func(*http.Request) bool
}

// On matches verbs on resources, both comma-separated; "" is any.
func On(verbs, resources string) Match { return Match{Verbs: verbs, Resource: resources} }

// Watches matches the watch streams of the given resources, or of all resources.
func Watches(resources ...string) Match { return On("watch", strings.Join(resources, ",")) }

// Rewatches matches the watches of the given resources that go on from a version.
func Rewatches(resources ...string) Match {
	m := Watches(resources...)
	m.When = func(r *http.Request) bool {
		version := r.URL.Query().Get("resourceVersion")
		return version != "" && version != "0" && r.URL.Query().Get("sendInitialEvents") != "true"
	}
	return m
}

// StreamingLists matches the streaming lists of the given resources.
func StreamingLists(resources ...string) Match {
	m := Watches(resources...)
	m.When = func(r *http.Request) bool { return r.URL.Query().Get("sendInitialEvents") == "true" }
	return m
}

func (m Match) matches(i info, r *http.Request) bool {
	return isListed(m.Verbs, i.verb) &&
		resourceListed(m.Resource, i) &&
		(m.Namespace == "" || m.Namespace == i.namespace) &&
		(m.Name == "" || m.Name == i.name) &&
		strings.Contains(r.UserAgent(), m.UserAgent) &&
		strings.HasPrefix(r.URL.Path, m.PathPrefix) &&
		(m.When == nil || m.When(r))
}

func isListed(list, word string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), word)
}

func resourceListed(list string, i info) bool {
	return isListed(list, i.fullResource()) || slices.Contains(strings.Split(list, ","), i.resource+"/*")
}

// RuleOption narrows when a matching request is hit. Options may be combined.
type RuleOption func(*Rule)

// Next ends the rule after n hits.
func Next(n int) RuleOption { return func(r *Rule) { r.left = n } }

// After lets the first n matching requests pass.
func After(n int) RuleOption { return func(r *Rule) { r.skip = n } }

// Chance hits a matching request with probability p, drawn from the proxy's seeded source.
func Chance(p float64) RuleOption { return func(r *Rule) { r.chance = p } }

// Rule is a fault that waits for requests. All methods are safe for concurrent use.
type Rule struct {
	script *script
	match  Match
	fault  Fault
	skip   int     // matching requests still let through
	left   int     // hits still to come; negative: no end
	chance float64 // of a hit
	hits   int
}

// Remove ends the rule. Requests already hit stay hit.
func (r *Rule) Remove() {
	r.script.lock.Lock()
	defer r.script.lock.Unlock()
	r.script.rules = slices.DeleteFunc(r.script.rules, func(other *Rule) bool { return other == r })
}

// Hits is the number of requests hit so far.
func (r *Rule) Hits() int {
	r.script.lock.Lock()
	defer r.script.lock.Unlock()
	return r.hits
}

func (r *Rule) fires(draw func() float64) bool {
	switch {
	case r.left == 0:
		return false
	case r.skip > 0:
		r.skip--
		return false
	case r.chance < 1 && draw() >= r.chance:
		return false
	}
	r.left--
	r.hits++
	return true
}

type script struct {
	lock   sync.Mutex
	rules  []*Rule
	random *rand.Rand
}

func (s *script) addRule(m Match, f Fault, opts []RuleOption) *Rule {
	rule := &Rule{script: s, match: m, fault: f, left: -1, chance: 1}
	for _, opt := range opts {
		opt(rule)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.rules = append(s.rules, rule)
	return rule
}

func (s *script) removeAll() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.rules = nil
}

func (s *script) chooseFault(i info, r *http.Request) Fault {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, rule := range s.rules {
		if rule.match.matches(i, r) && rule.fires(s.random.Float64) {
			return rule.fault
		}
	}
	return Fault{}
}
