package namespace_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

const extensionGroup = "stub.example.com"

// extension is an aggregated API server in this process. It serves types with fewer verbs than any type of
// kube-apiserver or any custom resource has, and it can be down.
type extension struct {
	lock    sync.Mutex
	down    bool
	types   map[string][]string            // verbs by resource
	objects map[string]map[string][]string // finalizers by resource and namespace/name
	asked   []string                       // requests for objects: method, path
}

// extend registers the extension with the cluster until the test ends.
func extend(t *testing.T, e *extension) {
	t.Helper()
	server := httptest.NewTLSServer(e)
	t.Cleanup(server.Close)
	port := int32(server.Listener.Addr().(*net.TCPAddr).Port)
	client := cluster.Client(t)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "stub-"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: port}}},
	}
	service, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{})
	check(t, err)
	apis, err := aggregator.NewForConfig(cluster.Config())
	check(t, err)
	_, err = apis.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + extensionGroup},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: extensionGroup, Version: "v1", GroupPriorityMinimum: 10, VersionPriority: 10, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: service.Name, Port: &port},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		withdraw(t, apis)
		forgotten(t)
	})
}

func withdraw(t *testing.T, apis aggregator.Interface) {
	t.Helper()
	err := apis.ApiregistrationV1().APIServices().Delete(cleanupContext(t), "v1."+extensionGroup, metav1.DeleteOptions{})
	if err != nil && !strings.Contains(err.Error(), "not found") {
		t.Error(err)
	}
}

func (e *extension) set(down bool) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.down = down
}

func (e *extension) requests() []string {
	e.lock.Lock()
	defer e.lock.Unlock()
	return append([]string(nil), e.asked...)
}

func (e *extension) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	path := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(path) == 3: // apis/group/version
		e.discover(w)
	case len(path) >= 6 && path[3] == "namespaces":
		e.asked = append(e.asked, req.Method+" "+req.URL.Path)
		e.serve(w, req.Method, path[4], path[5], strings.Join(path[6:], "/"))
	default:
		http.NotFound(w, req)
	}
}

func (e *extension) discover(w http.ResponseWriter) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: extensionGroup + "/v1"}
	for name, verbs := range e.types {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: "Stub", Namespaced: true, Verbs: verbs})
	}
	answer(w, http.StatusOK, list)
}

func (e *extension) serve(w http.ResponseWriter, method, ns, resource, name string) {
	key := ns + "/" + name
	switch {
	case method == http.MethodGet && name == "":
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		list.ResourceVersion = "1"
		for object, finalizers := range e.objects[resource] {
			if owner, n, _ := strings.Cut(object, "/"); owner == ns {
				list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: n, UID: types.UID(n), Finalizers: finalizers}})
			}
		}
		answer(w, http.StatusOK, list)
	case method == http.MethodDelete && name != "":
		if len(e.objects[resource][key]) == 0 {
			delete(e.objects[resource], key)
		}
		answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	default:
		answer(w, http.StatusMethodNotAllowed, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: fmt.Sprintf("%s is not supported", method),
		})
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client notices
}
