package app

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// fakeAPI is an API server over TLS that knows tokens, reviews access and publishes one ConfigMap.
type fakeAPI struct {
	*httptest.Server

	lock      sync.Mutex
	tokens    map[string]authenticationv1.UserInfo // bearer token → user
	allowed   []string                             // "user verb path" or "verb resource", see review
	configMap *corev1.ConfigMap                    // nil: not published
	status    int                                  // not 0: answer everything with this
	asked     []string                             // kinds of review, in order
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{tokens: map[string]authenticationv1.UserInfo{}}
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Server.Close)
	return f
}

// kubeconfig writes a file that reaches the server; change may alter it first.
func (f *fakeAPI) kubeconfig(t *testing.T, change func(*clientcmdapi.Config)) string {
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
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (f *fakeAPI) restConfig(t *testing.T, change func(*clientcmdapi.Config)) *rest.Config {
	t.Helper()
	cfg, err := loadKubeconfig("kubeconfig", f.kubeconfig(t, change), "")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func (f *fakeAPI) set(change func(*fakeAPI)) {
	f.lock.Lock()
	defer f.lock.Unlock()
	change(f)
}

func (f *fakeAPI) count(kind string) int {
	f.lock.Lock()
	defer f.lock.Unlock()
	n := 0
	for _, k := range f.asked {
		if k == kind {
			n++
		}
	}
	return n
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	defer f.lock.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if f.status != 0 {
		w.WriteHeader(f.status)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: int32(f.status), Message: "as the test wishes", Reason: reasonOf(f.status),
		})
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		f.asked = append(f.asked, "token")
		var review authenticationv1.TokenReview
		decode(r, &review)
		review.Status.User, review.Status.Authenticated = f.tokens[review.Spec.Token], f.tokens[review.Spec.Token].Username != ""
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		f.asked = append(f.asked, "access")
		var review authorizationv1.SubjectAccessReview
		decode(r, &review)
		a := review.Spec.NonResourceAttributes
		review.Status.Allowed = slices.Contains(f.allowed, review.Spec.User+" "+a.Verb+" "+a.Path)
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		f.asked = append(f.asked, "self")
		var review authorizationv1.SelfSubjectAccessReview
		decode(r, &review)
		a := review.Spec.ResourceAttributes
		what := access{group: a.Group, resource: strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/"), namespace: a.Namespace, name: a.Name}
		review.Status.Allowed = slices.Contains(f.allowed, a.Verb+" "+what.String())
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

// decode reads a body, JSON or protobuf; one that cannot be read leaves into empty, which no test expects.
func decode(r *http.Request, into runtime.Object) {
	body, _ := io.ReadAll(r.Body)
	_, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
}

// serveConfigMaps answers lists; a watch stays open and silent.
func (f *fakeAPI) serveConfigMaps(w http.ResponseWriter, r *http.Request) {
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
	if f.configMap != nil {
		list.Items = append(list.Items, *f.configMap)
	}
	_ = json.NewEncoder(w).Encode(list)
}

func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	}
	return metav1.StatusReasonInternalError
}

// writeFile writes a file of the test and returns its path.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
