package freshness

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A token may expire while the API server is away. A held request is sent with the current token.
func TestHeldRequestIsSentWithTheTokenOfThatMoment(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var sent []string
		cfg := &rest.Config{Host: "https://server", BearerTokenFile: token, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			if sent = append(sent, req.Header.Get("Authorization")); time.Since(start) < 10*time.Minute {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: req}, nil
		})}
		cfg, client, err := newTransport().Client(cfg, false)
		if err != nil {
			t.Fatal(err)
		}
		set, err := kubernetes.NewForConfigAndClient(cfg, client)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { write("new") })
		if _, err := set.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err == nil {
			t.Error("no error from a server that forbids it")
		}
		if first, last := sent[0], sent[len(sent)-1]; first != "Bearer old" || last != "Bearer new" {
			t.Errorf("it was first sent with %q and last with %q, want Bearer old and Bearer new", first, last)
		}
	})
}
