package command

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/fifo" // metrics of informers
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version" // kubernetes_build_info
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"minikcm/pkg/app"
)

// process is what exists once in a process and is set by the first command in it.
var process struct {
	lock sync.Mutex
	set  bool
}

// setUpProcess applies what is global: logging, the gates that libraries ask, and the metrics that libraries keep.
func setUpProcess(o *app.Options) error {
	process.lock.Lock()
	defer process.lock.Unlock()
	if process.set {
		return nil
	}
	if err := logsapi.ValidateAndApply(o.Logs, o.Gate()); err != nil {
		return fmt.Errorf("logging flags: %w", err)
	}
	// The loops use the current version of each API; warnings about deprecated ones are not for whoever runs this.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	o.UseGatesForLibraries()
	applyMetrics(o.Metrics)
	process.set = true
	return nil
}

// applyMetrics sets what the metrics flags ask for, and nothing for flags that were not given: the library's own function takes
// an empty file name for a broken file and logs an error at every start.
func applyMetrics(o *metrics.Options) {
	if o.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	metrics.SetDisabledMetrics(o.DisabledMetrics)
	switch {
	case len(o.AllowListMapping) > 0:
		metrics.SetLabelAllowList(o.AllowListMapping)
	case o.AllowListMappingManifest != "":
		metrics.SetLabelAllowListFromManifest(o.AllowListMappingManifest)
	}
	// The library registers every number the Go runtime has, 225 lines of them; the usual set is enough.
	registry := legacyregistry.Registerer()
	if registry.Unregister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll))) {
		registry.MustRegister(collectors.NewGoCollector())
	}
}
