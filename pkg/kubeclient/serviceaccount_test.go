package kubeclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/internal/fakeapi"
)

// The integration tests check that the roles of kube-controller-manager are sufficient.
func TestTokensOfServiceAccounts(t *testing.T) {
	missing := apierrors.NewNotFound(corev1.Resource("serviceaccounts"), "replicaset-controller")
	for _, tt := range []struct {
		name    string
		results []error // of requests for a token
		life    time.Duration
		calls   []string
		use     time.Duration // zero for an error
	}{
		{"account exists", []error{nil}, time.Hour, []string{"create serviceaccounts/token"}, 48 * time.Minute},
		{"short life", []error{nil}, 10 * time.Minute, []string{"create serviceaccounts/token"}, 8 * time.Minute},
		{"clock of the API server is behind", []error{nil}, -time.Hour, []string{"create serviceaccounts/token"}, time.Minute},
		{"account is missing", []error{missing, nil}, time.Hour, []string{"create serviceaccounts/token", "create serviceaccounts", "create serviceaccounts/token"}, 48 * time.Minute},
		{"rejected", []error{errors.New("no")}, time.Hour, []string{"create serviceaccounts/token"}, 0},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			now := time.Now()
			client := fakeapi.NewScript[*corev1.ServiceAccount](t)
			client.On("create serviceaccounts/token", func(call int, _ clienttesting.Action) (runtime.Object, error) {
				status := authenticationv1.TokenRequestStatus{Token: "secret", ExpirationTimestamp: metav1.NewTime(now.Add(tt.life))}
				return &authenticationv1.TokenRequest{Status: status}, tt.results[call-1]
			})
			s := &serviceAccount{client: client.CoreV1().ServiceAccounts("kube-system"), name: "replicaset-controller"}
			token, err := s.Token()
			fakeapi.WantEqual(t, "requests", client.Sent(), tt.calls)
			fakeapi.Want(t, "any error", err != nil, tt.use == 0)
			if err == nil && (token.AccessToken != "secret" || token.Expiry.Sub(now) != tt.use) {
				t.Errorf("token %q is used for %v, want %v", token.AccessToken, token.Expiry.Sub(now), tt.use)
			}
		})
	}
}

// A deadline that begins before the token is fetched would be too short for the request.
func TestTokenIsFetchedBeforeARequestIsGuarded(t *testing.T) {
	var order []string
	record := func(what string) http.RoundTripper {
		return fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
			order = append(order, what)
			body, err := json.Marshal(&authenticationv1.TokenRequest{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
				Status:   authenticationv1.TokenRequestStatus{Token: "secret", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))},
			})
			return &http.Response{StatusCode: http.StatusCreated, Body: io.NopCloser(bytes.NewReader(body)),
				Header: http.Header{"Content-Type": {"application/json"}}}, err
		})
	}
	base := &rest.Config{Host: "https://api", ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: record("token")}
	cfg, err := AsServiceAccount(base, "replicaset-controller", func(cfg *rest.Config) {
		cfg.Transport = record("sent")
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
				order = append(order, "guarded")
				return rt.RoundTrip(req)
			})
		})
	})
	fakeapi.NoError(t, err)
	rt := fakeapi.Must(rest.TransportFor(cfg))
	fakeapi.Must(rt.RoundTrip(fakeapi.Must(http.NewRequest("POST", "https://api/api/v1/namespaces/a/pods", nil))))
	fakeapi.WantEqual(t, "order", order, []string{"token", "guarded", "sent"})
}
