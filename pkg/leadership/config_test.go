package leadership

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestValidate(t *testing.T) {
	valid := Config{Enabled: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Namespace: "kube-system", Name: "controller-manager", Identity: "me"}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"upstream's defaults", func(*Config) {}, nil},
		{"off: nothing matters", func(c *Config) { *c = Config{} }, nil},
		{"no durations", func(c *Config) { c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 0, 0, 0 }, []string{"leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period"}},
		{"negative durations", func(c *Config) { c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = -3, -2, -1 }, []string{"leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period"}},
		{"lease as long as the renew deadline", func(c *Config) { c.LeaseDuration = c.RenewDeadline }, []string{"leader-elect-lease-duration"}},
		{"lease no longer than the renew deadline before it is rounded", func(c *Config) {
			c.LeaseDuration, c.RenewDeadline = 10900*time.Millisecond, 10900*time.Millisecond
		}, []string{"leader-elect-lease-duration"}},
		{"others see whole seconds only", func(c *Config) { c.LeaseDuration, c.RenewDeadline = 10900*time.Millisecond, 10*time.Second }, nil},
		{"less than a second", func(c *Config) {
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 900*time.Millisecond, 500*time.Millisecond, 100*time.Millisecond
		}, nil},
		{"little room for the margin", func(c *Config) { c.LeaseDuration, c.RenewDeadline = 20*time.Second, 18*time.Second }, nil},
		{"hardly any room", func(c *Config) { c.RenewDeadline = 15*time.Second - 1 }, []string{"leader-elect-lease-duration"}},
		{"one retry per renew deadline", func(c *Config) { c.RetryPeriod = 8500 * time.Millisecond }, []string{"leader-elect-renew-deadline"}},
		{"names", func(c *Config) { c.Namespace, c.Name = "", "" }, []string{"leader-elect-resource-namespace", "leader-elect-resource-name"}},
		{"resource lock", func(c *Config) { c.ResourceLock = "endpoints" }, []string{"leader-elect-resource-lock"}},
		{"negative shutdown timeout, election off", func(c *Config) { *c = Config{ShutdownTimeout: -1} }, []string{"controller-shutdown-timeout"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := valid
			tt.change(&c)
			var got []string
			for _, e := range c.Validate() {
				flag, _, _ := strings.Cut(e.Error(), ":")
				got = append(got, strings.TrimPrefix(flag, "--"))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("invalid flags = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestMargin(t *testing.T) {
	for _, tt := range []struct{ lease, renew, want time.Duration }{
		{15 * time.Second, 10 * time.Second, 1500 * time.Millisecond},
		{time.Minute, 40 * time.Second, 6 * time.Second},
		{5 * time.Second, 3 * time.Second, time.Second},
		{3 * time.Second, 2 * time.Second, 500 * time.Millisecond},
		{20 * time.Second, 18 * time.Second, time.Second},
		{11 * time.Second, 10 * time.Second, 500 * time.Millisecond},
		{10 * time.Second, 15 * time.Second, 100 * time.Millisecond},
	} {
		if got := (Config{RenewDeadline: tt.renew}).margin(tt.lease); got != tt.want {
			t.Errorf("margin(%v) = %v with a renew deadline of %v, want %v", tt.lease, got, tt.renew, tt.want)
		}
	}
}

func TestLeaseIsRoundedUpToWholeSeconds(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		15 * time.Second: 15 * time.Second, 15*time.Second + 1: 16 * time.Second, 900 * time.Millisecond: time.Second, 0: 0, -1: -1,
	} {
		if got := (Config{LeaseDuration: lease}).rounded().LeaseDuration; got != want {
			t.Errorf("a lease of %v is kept for %v, want %v", lease, got, want)
		}
	}
}

func TestLeaseClientHasItsOwnConnection(t *testing.T) {
	var seen []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Proto+" "+r.RemoteAddr)
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"x"}}`))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	base := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	for range 2 {
		client, err := NewLeaseClient(base, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Leases("a").Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 2 || seen[0] == seen[1] || seen[0][:8] != "HTTP/1.1" {
		t.Errorf("requests came by %v, want two connections of HTTP/1.1", seen)
	}
	if base.Timeout != 0 || base.Dial != nil {
		t.Error("the given config was changed")
	}
}
