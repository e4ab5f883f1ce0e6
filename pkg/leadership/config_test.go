package leadership

import (
	"slices"
	"strings"
	"testing"
	"time"
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
		c := valid
		tt.change(&c)
		var got []string
		for _, e := range c.Validate() {
			flag, _, _ := strings.Cut(e.Error(), ":")
			got = append(got, strings.TrimPrefix(flag, "--"))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: invalid flags = %v, want %v", tt.name, got, tt.want)
		}
	}
}
