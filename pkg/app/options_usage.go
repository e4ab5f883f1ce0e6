package app

import (
	"strings"

	cliflag "k8s.io/component-base/cli/flag"

	"minikcm/pkg/controller"
)

// describe gives the flags that libraries define our own words, shorter ones: help is read on a terminal.
func (o *Options) describe(sections cliflag.NamedFlagSets) {
	usage := map[string]string{
		"emulated-version": "Behave like this version where gates depend on it: major.minor, from " + controller.OldestEmulation().String() + " on.",
		"min-compatibility-version": "Oldest version of the control plane's other components: major.minor, no later than " +
			"--emulated-version.",
		"feature-gates": "Switches for individual behaviours, name=true|false, separated by commas; docs/feature-gates.md says what " +
			"they do.\nKnown:\n" + strings.Join(o.gates.gate.KnownFeatures(), "\n"),
		"show-hidden-metrics-for-version": "The previous minor version: metrics that this version hides are shown once more.",
		"disabled-metrics":                "Full names of metrics not to collect.",
		"allow-metric-labels":             "metric,label='value,…': other values of this label are counted as 'unexpected'.",
		"allow-metric-labels-manifest":    "File with the same as --allow-metric-labels, as a YAML map. The flag takes precedence.",
		"log-flush-frequency":             "How often buffered log lines are written.",
		"logging-format":                  "'text' or 'json'.",
		"v":                               "Log verbosity: 0 life cycle, 2 what was changed, 4 why, 5 trace. Can be changed at /debug/flags/v.",
		"vmodule":                         "file=verbosity,… for single source files, text format only.",
		"log-json-split-stream":           "Alpha: errors to stderr, the rest to stdout. Format json.",
		"log-json-info-buffer-size":       "Alpha: size of the stdout buffer in bytes. Format json.",
		"log-text-split-stream":           "Alpha: errors to stderr, the rest to stdout. Format text.",
		"log-text-info-buffer-size":       "Alpha: size of the stdout buffer in bytes. Format text.",
		"help":                            "Show this.",
	}
	for _, fs := range sections.FlagSets {
		for name, text := range usage {
			if f := fs.Lookup(name); f != nil {
				f.Usage = text
			}
		}
	}
}
