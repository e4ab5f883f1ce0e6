package app

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
)

// answering is a transport.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A token may expire while the API server is away: what was held comes with the one of the moment.
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
		cfg := &rest.Config{Host: "https://server", BearerTokenFile: token, Transport: answering(func(req *http.Request) (*http.Response, error) {
			if sent = append(sent, req.Header.Get("Authorization")); time.Since(start) < 10*time.Minute {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: req}, nil
		})}
		transport, err := wrapped(cfg, caches.Reconnecting(clock.RealClock{}))
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfigAndClient(cfg, transport)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { write("new") })
		if _, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err == nil {
			t.Error("no error from a server that forbids it")
		}
		if first, last := sent[0], sent[len(sent)-1]; first != "Bearer old" || last != "Bearer new" {
			t.Errorf("it was first sent with %q and last with %q, want Bearer old and Bearer new", first, last)
		}
	})
}

func TestLeasesAreWatchedWhereSomebodyReadsThem(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"kube-system", "kube-node-lease"}},
		{[]string{"--controllers=replicaset"}, []string{"kube-system"}},
		{[]string{"--leader-elect=false"}, []string{"kube-node-lease"}},
		{[]string{"--feature-gates=LeaseWatch=false"}, []string{"kube-node-lease"}},
		{[]string{"--leader-elect=false", "--controllers=replicaset"}, nil},
		{[]string{"--leader-elect-resource-namespace=kube-node-lease"}, []string{"kube-node-lease"}},
	} {
		cfg, err := parsed(t, append(tt.args, "--kubeconfig="+minimalKubeconfig(t))...).Config()
		if err != nil {
			t.Fatal(err)
		}
		if got := leaseNamespaces(cfg); !slices.Equal(got, tt.want) {
			t.Errorf("with %q Leases of %q are watched, want %q", tt.args, got, tt.want)
		}
	}
}

func TestResyncPeriod(t *testing.T) {
	if got := resyncPeriod(0); got != 0 {
		t.Errorf("a resync period of 0 becomes %v, want 0, which is never", got)
	}
	for range 1000 {
		if got := resyncPeriod(time.Hour); got < time.Hour || got >= 2*time.Hour {
			t.Fatalf("a resync period of an hour becomes %v, want one to two hours", got)
		}
	}
}

// Whoever cuts a write that is not answered decides whether the lease may be released.
func TestLoopsOutlastTheElectorsPatience(t *testing.T) {
	for shutdown, want := range map[time.Duration]time.Duration{0: 0, time.Nanosecond: time.Second + 1, 10 * time.Second: 11 * time.Second} {
		if got := drain(shutdown); got != want {
			t.Errorf("drain(%v) = %v, want %v", shutdown, got, want)
		}
	}
}
