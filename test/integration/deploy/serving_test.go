package deploy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 30 * time.Second

// token makes a token of a service account, and the account if need be.
func token(t *testing.T, namespaceName, name string) string {
	t.Helper()
	namespace(t, namespaceName)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName, Name: name}}
	must(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), account)))
	var request authenticationv1.TokenRequest
	must(t, admin.SubResource("token").Create(t.Context(), account, &request))
	return request.Status.Token
}

// endpoint is a manager's, for a client with some credentials.
type endpoint struct {
	address string
	token   string
}

func (e endpoint) get(path string) (code int, text string, err error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodGet, "https://"+e.address+path, nil)
	if err != nil {
		return 0, "", err
	}
	if e.token != "" {
		request.Header.Set("Authorization", "Bearer "+e.token)
	}
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

func (e endpoint) expect(t *testing.T, path string, want int) string {
	t.Helper()
	var text string
	controlplane.Eventually(t, patience, func(context.Context) error {
		code, body, err := e.get(path)
		if err == nil && code != want {
			err = fmt.Errorf("GET %s: %d, want %d: %s", path, code, want, body[:min(len(body), 300)])
		}
		text = body
		return err
	})
	return text
}
