// Package fakeapi has fake API servers for unit tests: [Clientset] with requests and watches that can be broken, also
// in fake time; [Server] over TLS for permissions, tokens and certificates; [Types] for discovery and types that come
// and go; and [CA], an authority that issues certificates.
package fakeapi

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Server is an API server over TLS that knows tokens, reviews access and publishes a ConfigMap. Fields are changed
// within [Server.Set].
type Server struct {
	*httptest.Server

	lock      sync.Mutex
	Tokens    map[string]authenticationv1.UserInfo // bearer token → user
	Allowed   []string                             // "verb path" or "verb resource.group/subresource name in namespace"
	ConfigMap *corev1.ConfigMap                    // nil: not published
	Readyz    Readyz                               // the health check
	Status    int                                  // not 0: status of all other responses
	Forbidden string                               // resource with status 403; empty: none
	Failed    bool                                 // whether access reviews report that an authorizer has failed
	Reviews   []string                             // kinds of review, in order: token, access or self
}

// New starts a server without users until the test ends.
func New(t *testing.T) *Server {
	t.Helper()
	f := &Server{Tokens: map[string]authenticationv1.UserInfo{}}
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Server.Close)
	return f
}

// Kubeconfig writes a kubeconfig file for the server. change may be nil.
func (f *Server) Kubeconfig(t *testing.T, change func(*clientcmdapi.Config)) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: f.URL, CertificateAuthorityData: ca}
	cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "manager"}
	cfg.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "x"
	if change != nil {
		change(cfg)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	NoError(t, clientcmd.WriteToFile(*cfg, file))
	return file
}

// Set changes the server between two responses.
func (f *Server) Set(change func(*Server)) {
	f.lock.Lock()
	defer f.lock.Unlock()
	change(f)
}

// Count returns the number of reviews of a kind.
func (f *Server) Count(kind string) int {
	f.lock.Lock()
	defer f.lock.Unlock()
	n := 0
	for _, k := range f.Reviews {
		if k == kind {
			n++
		}
	}
	return n
}

// ServeHTTP implements http.Handler.
func (f *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if r.URL.Path == "/readyz" {
		f.Readyz.writeStatus(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if f.Status != 0 {
		writeFailure(w, f.Status)
		return
	}
	switch {
	case f.Forbidden != "" && strings.HasSuffix(r.URL.Path, "/"+f.Forbidden):
		writeFailure(w, http.StatusForbidden)
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		f.Reviews = append(f.Reviews, "token")
		var review authenticationv1.TokenReview
		decodeBody(r, &review)
		review.Status.User, review.Status.Authenticated = f.Tokens[review.Spec.Token], f.Tokens[review.Spec.Token].Username != ""
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		f.Reviews = append(f.Reviews, "access")
		var review authorizationv1.SubjectAccessReview
		decodeBody(r, &review)
		review.Status.Allowed = slices.Contains(f.Allowed, review.Spec.User+" "+describeAccess(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes))
		review.Status.EvaluationError = map[bool]string{true: "no response"}[f.Failed]
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		f.Reviews = append(f.Reviews, "self")
		var review authorizationv1.SelfSubjectAccessReview
		decodeBody(r, &review)
		review.Status.Allowed = slices.Contains(f.Allowed, describeAccess(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes))
		review.Status.EvaluationError = map[bool]string{true: "no response"}[f.Failed]
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		_ = json.NewEncoder(w).Encode(authenticationv1.SelfSubjectReview{
			Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "manager"}},
		})
	case strings.HasSuffix(r.URL.Path, "/configmaps"):
		f.serveConfigMaps(w, r)
	default:
		http.NotFound(w, r)
	}
}

func decodeBody(r *http.Request, into runtime.Object) {
	body, _ := io.ReadAll(r.Body)
	_, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
}

func (f *Server) serveConfigMaps(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		if r.URL.Query().Get("sendInitialEvents") != "" {
			w.WriteHeader(http.StatusUnprocessableEntity) // as a server without streaming lists
			return
		}
		w.(http.Flusher).Flush()
		f.lock.Unlock()
		<-r.Context().Done()
		f.lock.Lock()
		return
	}
	list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}}
	list.ResourceVersion = "1"
	if f.ConfigMap != nil {
		list.Items = append(list.Items, *f.ConfigMap)
	}
	_ = json.NewEncoder(w).Encode(list)
}

func writeFailure(w http.ResponseWriter, code int) {
	writeError(w, apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "as the test wishes", 0, true))
}

func describeAccess(a *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) string {
	if a == nil {
		return path.Verb + " " + path.Path
	}
	what := a.Verb + " " + a.Resource
	for _, part := range [][2]string{{".", a.Group}, {"/", a.Subresource}, {" ", a.Name}, {" in ", a.Namespace}} {
		if part[1] != "" {
			what += part[0] + part[1]
		}
	}
	return what
}
