package app

import (
	"fmt"
	"math"
	"strings"
	"time"

	apiversion "k8s.io/apimachinery/pkg/util/version"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	baseversion "k8s.io/component-base/version"
)

// leasesLock is the only kind of lock there is.
const leasesLock = "leases"

// Validate returns every problem, each naming its flag or its group of flags. It asks nobody and reads no file but
// --allow-metric-labels-manifest.
func (o *Options) Validate() []error {
	var p problems
	for _, name := range o.unused {
		p.addf(name, "not used by this manager, remove it")
	}
	p.append(o.Generic.validate())
	p.append(o.Client.validate())
	p.append(o.LeaderElection.validate())
	p.append(o.gates.validate())
	p.append(o.Serving.validate())
	p.append(o.Authentication.validate())
	p.append(o.Authorization.validate())
	p.append(o.NodeLifecycle.validate())
	p.workers("concurrent-replicaset-syncs", o.ReplicaSet.ConcurrentSyncs)
	p.workers("concurrent-namespace-syncs", o.Namespace.ConcurrentSyncs)
	p.positive("namespace-sync-period", o.Namespace.SyncPeriod)
	p.notNegative("namespace-deletion-grace-period", o.Namespace.DeletionGracePeriod)
	p.append(validateMetrics(o.Metrics))
	for _, err := range logsapi.Validate(o.Logs, o.gates.gate, nil) {
		p = append(p, fmt.Errorf("logging flags: %w", err))
	}
	return p
}

func (o *GenericOptions) validate() []error {
	var p problems
	if err := unknownControllers(canonical(o.Controllers, controllerAliases()), controllerNames()); err != nil {
		p = append(p, err)
	}
	p.notNegative("min-resync-period", o.MinResyncPeriod)
	p.notNegative("controller-start-interval", o.ControllerStartInterval)
	p.notNegative("controller-shutdown-timeout", o.ControllerShutdownTimeout)
	return p
}

func (o *ClientOptions) validate() []error {
	var p problems
	qps := float64(o.QPS)
	switch {
	case math.IsNaN(qps) || math.IsInf(qps, 0):
		p.addf("kube-api-qps", "%v is not a rate", o.QPS)
	case o.QPS >= 0 && o.Burst < 0:
		p.addf("kube-api-burst", "%d is negative, which with --kube-api-qps=%v would send nothing", o.Burst, o.QPS)
	}
	if _, err := o.mediaType(); err != nil {
		p.addf("kube-api-content-type", "%w", err)
	}
	return p
}

// validate follows component-base's and client-go's own rules, which kube-controller-manager finds out about only when
// the elector panics.
func (o *LeaderElectionOptions) validate() []error {
	if !o.LeaderElect {
		return nil
	}
	var p problems
	for _, err := range o.config("any", 0).Validate() {
		p.addf(electionFlags[err.Field], "%w", err.Err)
	}
	if o.ResourceLock != leasesLock {
		p.addf("leader-elect-resource-lock", `%q: resourceLock value must be "leases"`, o.ResourceLock)
	}
	return p
}

// electionFlags are the flags behind the fields of leadership.Config.
var electionFlags = map[string]string{
	"LeaseDuration":   "leader-elect-lease-duration",
	"RenewDeadline":   "leader-elect-renew-deadline",
	"RetryPeriod":     "leader-elect-retry-period",
	"Namespace":       "leader-elect-resource-namespace",
	"Name":            "leader-elect-resource-name",
	"ShutdownTimeout": "controller-shutdown-timeout",
}

func (o *NodeLifecycleOptions) validate() []error {
	var p problems
	p.positive("node-monitor-period", o.MonitorPeriod)
	p.positive("node-monitor-grace-period", o.MonitorGracePeriod)
	p.positive("node-startup-grace-period", o.StartupGracePeriod)
	p.rate("node-eviction-rate", o.EvictionRate)
	p.rate("secondary-node-eviction-rate", o.SecondaryEvictionRate)
	// Upstream takes any number, and its users give more than 1 to say "never".
	if math.IsNaN(float64(o.UnhealthyZoneThreshold)) {
		p.addf("unhealthy-zone-threshold", "%v is not a number", o.UnhealthyZoneThreshold)
	}
	return p
}

func (o *ServingOptions) validate() []error {
	var p problems
	if o.SecurePort < 0 || o.SecurePort > math.MaxUint16 {
		p.addf("secure-port", "%d must be between 0 and 65535, inclusive; 0 switches serving off", o.SecurePort)
	}
	switch {
	case o.CertFile != "" && o.KeyFile == "":
		p.addf("tls-private-key-file", "is needed with --tls-cert-file=%s", o.CertFile)
	case o.CertFile == "" && o.KeyFile != "":
		p.addf("tls-cert-file", "is needed with --tls-private-key-file=%s", o.KeyFile)
	}
	if _, err := cliflag.TLSCipherSuites(o.CipherSuites); err != nil {
		p.addf("tls-cipher-suites", "%w", err)
	}
	if _, err := cliflag.TLSCurvePreferences(o.Curves); err != nil {
		p.addf("tls-curve-preferences", "%w", err)
	}
	if _, err := cliflag.TLSVersion(o.MinTLSVersion); err != nil {
		p.addf("tls-min-version", "%w", err)
	}
	if o.HTTP2Streams < 0 || o.HTTP2Streams > math.MaxInt32/uploadPerStream {
		p.addf("http2-max-streams-per-connection", "%d must be between 0 and %d", o.HTTP2Streams, math.MaxInt32/uploadPerStream)
	}
	return p
}

func (o *AuthenticationOptions) validate() []error {
	var p problems
	p.notNegative("authentication-token-webhook-cache-ttl", o.TokenCacheTTL)
	h := o.RequestHeader
	p.notBlank("requestheader-allowed-names", h.AllowedNames)
	p.notBlank("requestheader-username-headers", h.UsernameHeaders)
	p.notBlank("requestheader-uid-headers", h.UIDHeaders)
	p.notBlank("requestheader-group-headers", h.GroupHeaders)
	p.notBlank("requestheader-extra-headers-prefix", h.ExtraHeaderPrefixes)
	return p
}

func (o *AuthorizationOptions) validate() []error {
	var p problems
	p.notNegative("authorization-webhook-cache-authorized-ttl", o.AllowedTTL)
	p.notNegative("authorization-webhook-cache-unauthorized-ttl", o.DeniedTTL)
	for _, path := range o.AlwaysAllowPaths {
		if strings.Contains(strings.TrimSuffix(path, "*"), "*") {
			p.addf("authorization-always-allow-paths", "%q may have * only at its end", path)
		}
	}
	return p
}

// validateMetrics leaves --show-hidden-metrics-for-version out of the library's own check, which compares with the version that
// was linked in: ours is the program's, and what is hidden depends on the library's.
func validateMetrics(o *metrics.Options) []error {
	var p problems
	kept := *o
	kept.ShowHiddenMetricsForVersion = ""
	for _, err := range kept.Validate() {
		p = append(p, fmt.Errorf("metrics flags: %w", err))
	}
	previous := apiversion.MustParse(baseversion.DefaultKubeBinaryVersion).SubtractMinor(1).String()
	if v := o.ShowHiddenMetricsForVersion; v != "" && v != previous {
		p.addf("show-hidden-metrics-for-version", "%q is not the previous minor version, %s, which is the only one that may be given", v, previous)
	}
	return p
}

// problems collects what is wrong; every entry names its flag.
type problems []error

func (p *problems) append(errs []error) { *p = append(*p, errs...) }

func (p *problems) addf(flag, format string, args ...any) {
	*p = append(*p, fmt.Errorf("--"+flag+": "+format, args...))
}

func (p *problems) positive(flag string, d time.Duration) {
	if d <= 0 {
		p.addf(flag, "%v is not greater than zero", d)
	}
}

func (p *problems) notNegative(flag string, d time.Duration) {
	if d < 0 {
		p.addf(flag, "%v is negative", d)
	}
}

func (p *problems) workers(flag string, n int32) {
	if n < 1 {
		p.addf(flag, "%d is less than 1, nothing would be worked on", n)
	}
}

func (p *problems) rate(flag string, r float32) {
	if !(r >= 0 && !math.IsInf(float64(r), 0)) {
		p.addf(flag, "%v is not a rate of 0 or more", r)
	}
}

func (p *problems) notBlank(flag string, values []string) {
	for _, v := range values {
		if strings.TrimSpace(v) == "" {
			p.addf(flag, "has an empty value")
			return
		}
	}
}
