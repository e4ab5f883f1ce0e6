package kcmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"minikcm/internal/faket"
)

// AfterSuite runs when BeforeSuite has failed, too.
func TestStopOfAManagerThatWasNeverStarted(t *testing.T) {
	var m *Manager
	m.Stop()
}

func TestStopOfAManagerThatStoppedByItself(t *testing.T) {
	f, ended := &faket.T{}, make(chan struct{})
	close(ended)
	m := &Manager{t: f, stop: func() {}, done: ended, err: errors.New("broken")}
	m.Stop()
	m.Stop()
	if want := []string{"kcmtest: the controllers stopped by themselves: broken"}; !slices.Equal(f.Errors, want) {
		t.Errorf("told %q, want %q", f.Errors, want)
	}
}

func TestStartIsDoneWithControllersThatStopOnceTheyWork(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for range 20 {
		m := &Manager{done: closed, err: errors.New("broken")}
		if !m.waitUntilStarted(closed, nil) {
			t.Fatal("Start tells why they stopped, want it to be told by Stop")
		}
	}
}

// fakeServer is an API server that reviews access and serves no other request.
type fakeServer struct {
	allows func(authorizationv1.SelfSubjectAccessReviewSpec) bool
}

// RoundTrip implements http.RoundTripper.
func (f fakeServer) RoundTrip(req *http.Request) (*http.Response, error) {
	var answer any
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
			return nil, err
		}
		review.Status.Allowed = f.allows(review.Spec)
		answer = review
	case strings.HasSuffix(path, "/selfsubjectreviews"):
		answer = authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "stranger"}}}
	default:
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	body, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}, err
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	type right = authorizationv1.SelfSubjectAccessReviewSpec
	for _, tt := range []struct {
		name   string
		allows func(right) bool
		option Option
		want   string
	}{
		{"rights", func(right) bool { return false }, Controllers("namespace"), "kcmtest: user stranger is not allowed to: "},
		{"rights of the kubelets", func(r right) bool {
			a := r.ResourceAttributes
			return a == nil || a.Resource != "*" && (a.Resource != "pods" || a.Subresource != "status")
		}, PodsReady(),
			"kcmtest: user stranger is not allowed to: patch pods/status (pods do not get ready)"},
		{"lists", func(right) bool { return true }, Controllers("namespace"), "kcmtest: the controllers do not work after 30s: no list of namespaces, pods has come"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faket.T{}
				f.Run(func() {
					Start(f, &rest.Config{Host: "http://api", Transport: fakeServer{tt.allows}}, Controllers("replicaset"), tt.option)
				})
				if !strings.HasPrefix(f.Fatal, tt.want) || strings.Contains(f.Fatal, " --") || len(f.Errors) > 0 {
					t.Errorf("told %q and %q, want it to begin with %q and to name no flag", f.Fatal, f.Errors, tt.want)
				}
			})
		})
	}
}
