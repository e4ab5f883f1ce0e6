package app

import (
	"fmt"
	"math"

	apiversion "k8s.io/apimachinery/pkg/util/version"
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
	p.Append(o.Serving.Validate()...)
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
