package app

import (
	"fmt"
	"math"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/util/version"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	baseversion "k8s.io/component-base/version"

	"minikcm/pkg/controller"
	"minikcm/pkg/flagcheck"
)

// leasesLock is the only kind of lock there is.
const leasesLock = "leases"

// Validate returns every problem, each naming its flag or its group of flags. It asks nobody and reads no file but
// --allow-metric-labels-manifest.
func (o *Options) Validate() []error {
	var p flagcheck.Problems
	for _, name := range o.unused {
		p.Addf(name, "not used by this manager, remove it")
	}
	p.Append(o.Generic.validate(o.controllers)...)
	p.Append(o.Client.validate()...)
	p.Append(o.LeaderElection.validate()...)
	p.Append(o.gates.validate()...)
	p.Append(o.Serving.validate()...)
	p.Append(o.Authentication.validate()...)
	p.Append(o.Authorization.validate()...)
	for _, c := range o.controllers {
		if c.Config != nil {
			p.Append(c.Config.Validate()...)
		}
	}
	p.Append(validateMetrics(o.Metrics)...)
	for _, err := range logsapi.Validate(o.Logs, o.gates.gate, nil) {
		p = append(p, fmt.Errorf("logging flags: %w", err))
	}
	return p
}

func (o *GenericOptions) validate(controllers []controller.Registration) []error {
	var p flagcheck.Problems
	if err := unknownControllers(canonical(o.Controllers, aliases(controllers)), controllers); err != nil {
		p = append(p, err)
	}
	p.NotNegative("min-resync-period", o.MinResyncPeriod)
	p.NotNegative("controller-start-interval", o.ControllerStartInterval)
	p.NotNegative("controller-shutdown-timeout", o.ControllerShutdownTimeout)
	return p
}

func (o *ClientOptions) validate() []error {
	var p flagcheck.Problems
	qps := float64(o.QPS)
	switch {
	case math.IsNaN(qps) || math.IsInf(qps, 0):
		p.Addf("kube-api-qps", "%v is not a rate", o.QPS)
	case o.QPS >= 0 && o.Burst < 0:
		p.Addf("kube-api-burst", "%d is negative, which with --kube-api-qps=%v would send nothing", o.Burst, o.QPS)
	}
	if _, err := o.mediaType(); err != nil {
		p.Addf("kube-api-content-type", "%w", err)
	}
	return p
}

// validate follows component-base's and client-go's own rules, which kube-controller-manager finds out about only when
// the elector panics.
func (o *LeaderElectionOptions) validate() []error {
	if !o.LeaderElect {
		return nil
	}
	var p flagcheck.Problems
	for _, err := range o.config("any", 0).Validate() {
		p.Addf(electionFlags[err.Field], "%w", err.Err)
	}
	if o.ResourceLock != leasesLock {
		p.Addf("leader-elect-resource-lock", `%q: resourceLock value must be "leases"`, o.ResourceLock)
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

func (o *ServingOptions) validate() []error {
	var p flagcheck.Problems
	if o.SecurePort < 0 || o.SecurePort > math.MaxUint16 {
		p.Addf("secure-port", "%d must be between 0 and 65535, inclusive; 0 switches serving off", o.SecurePort)
	}
	switch {
	case o.CertFile != "" && o.KeyFile == "":
		p.Addf("tls-private-key-file", "is needed with --tls-cert-file=%s", o.CertFile)
	case o.CertFile == "" && o.KeyFile != "":
		p.Addf("tls-cert-file", "is needed with --tls-private-key-file=%s", o.KeyFile)
	}
	if _, err := cliflag.TLSCipherSuites(o.CipherSuites); err != nil {
		p.Addf("tls-cipher-suites", "%w", err)
	}
	if _, err := cliflag.TLSCurvePreferences(o.Curves); err != nil {
		p.Addf("tls-curve-preferences", "%w", err)
	}
	if _, err := cliflag.TLSVersion(o.MinTLSVersion); err != nil {
		p.Addf("tls-min-version", "%w", err)
	}
	if o.HTTP2Streams < 0 || o.HTTP2Streams > math.MaxInt32/uploadPerStream {
		p.Addf("http2-max-streams-per-connection", "%d must be between 0 and %d", o.HTTP2Streams, math.MaxInt32/uploadPerStream)
	}
	return p
}

func (o *AuthenticationOptions) validate() []error {
	var p flagcheck.Problems
	p.NotNegative("authentication-token-webhook-cache-ttl", o.TokenCacheTTL)
	h := o.RequestHeader
	p.NotBlank("requestheader-allowed-names", h.AllowedNames)
	p.NotBlank("requestheader-username-headers", h.UsernameHeaders)
	p.NotBlank("requestheader-uid-headers", h.UIDHeaders)
	p.NotBlank("requestheader-group-headers", h.GroupHeaders)
	p.NotBlank("requestheader-extra-headers-prefix", h.ExtraHeaderPrefixes)
	return p
}

func (o *AuthorizationOptions) validate() []error {
	var p flagcheck.Problems
	p.NotNegative("authorization-webhook-cache-authorized-ttl", o.AllowedTTL)
	p.NotNegative("authorization-webhook-cache-unauthorized-ttl", o.DeniedTTL)
	for _, path := range o.AlwaysAllowPaths {
		if strings.Contains(strings.TrimSuffix(path, "*"), "*") {
			p.Addf("authorization-always-allow-paths", "%q may have * only at its end", path)
		}
	}
	return p
}

// validateMetrics leaves --show-hidden-metrics-for-version out of the library's own check, which compares with the version that
// was linked in: ours is the program's, and what is hidden depends on the library's.
func validateMetrics(o *metrics.Options) []error {
	var p flagcheck.Problems
	kept := *o
	kept.ShowHiddenMetricsForVersion = ""
	for _, err := range kept.Validate() {
		p = append(p, fmt.Errorf("metrics flags: %w", err))
	}
	previous := apiversion.MustParse(baseversion.DefaultKubeBinaryVersion).SubtractMinor(1).String()
	if v := o.ShowHiddenMetricsForVersion; v != "" && v != previous {
		p.Addf("show-hidden-metrics-for-version", "%q is not the previous minor version, %s, which is the only one that may be given", v, previous)
	}
	return p
}
