package faults

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"minikcm/internal/fakeapi"
)

func TestMatch(t *testing.T) {
	status := httptest.NewRequest("PUT", "/apis/apps/v1/namespaces/ns/replicasets/x/status", nil)
	status.Header.Set("User-Agent", "manager/v1")
	for _, tt := range []struct {
		name  string
		match Match
		want  bool
	}{
		{"zero is everything", Match{}, true},
		{"all fields", Match{Verbs: "patch,update", Resource: "pods,replicasets/*", Namespace: "ns", Name: "x", UserAgent: "manager", PathPrefix: "/apis/apps/"}, true},
		{"subresource by name", On("", "replicasets/status"), true},
		{"verb not in the list", On("patch", ""), false},
		{"resource alone is not its subresource", On("", "replicasets"), false},
		{"other resource", On("", "pods/*"), false},
		{"other namespace", Match{Namespace: "n"}, false},
		{"other name", Match{Name: "y"}, false},
		{"other user agent", Match{UserAgent: "kubectl"}, false},
		{"other path prefix", Match{PathPrefix: "/api/"}, false},
		{"predicate says no", Match{When: func(*http.Request) bool { return false }}, false},
	} {
		fakeapi.Want(t, tt.name+": matches", tt.match.matches(parseRequest(status), status), tt.want)
	}
}

func TestRuleFires(t *testing.T) {
	draws := []float64{0.1, 0.6, 0.4, 0.5, 0.2}
	for _, tt := range []struct {
		name string
		opts []RuleOption
		want []bool // of five matching requests
	}{
		{"always by default", nil, []bool{true, true, true, true, true}},
		{"next two", []RuleOption{Next(2)}, []bool{true, true, false, false, false}},
		{"after three", []RuleOption{After(3)}, []bool{false, false, false, true, true}},
		{"by chance, below only", []RuleOption{Chance(0.5)}, []bool{true, false, true, false, true}},
		{"misses do not use up the hits", []RuleOption{Chance(0.5), Next(2)}, []bool{true, false, true, false, false}},
	} {
		rule := new(script).addRule(Match{}, Fault{}, tt.opts)
		var got []bool
		for _, draw := range draws {
			got = append(got, rule.fires(func() float64 { return draw }))
		}
		fakeapi.WantEqual(t, tt.name+": hits", got, tt.want)
	}
}

func TestFirstRuleThatFiresDecides(t *testing.T) {
	s := &script{random: newRandom(1, "")}
	r := httptest.NewRequest("POST", "/api/v1/namespaces/ns/pods", nil)
	first := s.addRule(On("create", "pods"), Refuse(503), []RuleOption{Next(1)})
	s.addRule(On("create", "nodes"), Refuse(404), nil)
	second := s.addRule(On("create", ""), DropAnswer(), nil)
	var got []string
	for range 3 {
		got = append(got, s.chooseFault(parseRequest(r), r).name)
	}
	second.Remove()
	got = append(got, s.chooseFault(parseRequest(r), r).name)
	fakeapi.WantEqual(t, "faults of four requests", got, []string{"refuse", "drop answer", "drop answer", ""})
	if first.Hits() != 1 || second.Hits() != 2 {
		t.Errorf("hits = %d and %d, want 1 and 2", first.Hits(), second.Hits())
	}
}
