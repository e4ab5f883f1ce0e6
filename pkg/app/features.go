package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	apiversion "k8s.io/apimachinery/pkg/util/version"
	clientfeatures "k8s.io/client-go/features"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	baseversion "k8s.io/component-base/version"
	zpagesfeatures "k8s.io/component-base/zpages/features"

	"minikcm/pkg/controller"
)

// AtomicFIFO is a gate of client-go. Caches need it: without it a store cannot return the version that it has reached.
const AtomicFIFO featuregate.Feature = "AtomicFIFO"

// gateSpecs are the gates of the manager and of its controllers.
func gateSpecs(controllers []controller.Registration) map[featuregate.Feature]featuregate.VersionedSpecs {
	specs := map[featuregate.Feature]featuregate.VersionedSpecs{
		"SeparateTaintEvictionController":                  fixed(true),
		"StaleControllerConsistencyReplicaSet":             fixed(true),
		"NodeControllerLeaseCircuitBreaker":                fixed(true),
		"ControllerManagerReleaseLeaderElectionLockOnExit": fixed(true),
		"CoordinatedLeaderElection":                        fixed(false),
	}
	for _, c := range controllers {
		maps.Copy(specs, c.Gates)
	}
	return specs
}

// fixed is a gate for what we do, or do not do, in any case. A manifest that asks for it is right, one that asks for the
// opposite is told so.
func fixed(on bool) featuregate.VersionedSpecs {
	return featuregate.VersionedSpecs{{
		Version: controller.OldestEmulation(), Default: on, LockToDefault: true, PreRelease: featuregate.GA,
	}}
}

// gates is the one set of feature gates of a command, with the versions they depend on.
type gates struct {
	gate     featuregate.MutableVersionedFeatureGate
	version  compatibility.MutableEffectiveVersion
	registry compatibility.ComponentGlobalsRegistry
	err      error // two lists of gates contradict each other; told when values are set

	given     *cliflag.ColonSeparatedMultimapStringString // the flag, by component
	ignored   []string                                    // names of given gates that this program does not have, sorted
	malformed []error                                     // settings of those whose value is not a boolean
	refused   error                                       // settings of ours that cannot be
}

// newGates returns all gates at their defaults: ours and those of client-go, logging, metrics and z-pages.
func newGates(controllers []controller.Registration) *gates {
	specs := gateSpecs(controllers)
	binary := apiversion.MustParse(baseversion.DefaultKubeBinaryVersion)
	oldest := controller.OldestEmulation().String()
	gate := featuregate.NewVersionedFeatureGate(binary)
	effective := compatibility.NewEffectiveVersionFromString(baseversion.DefaultKubeBinaryVersion, oldest, oldest)
	g := &gates{gate: gate, version: effective, registry: compatibility.NewComponentGlobalsRegistry()}
	for _, add := range []func() error{
		func() error { return gate.AddVersioned(specs) },
		func() error { return logsapi.AddFeatureGates(gate) },
		func() error { return metricsfeatures.AddFeatureGates(gate) },
		func() error { return zpagesfeatures.AddFeatureGates(gate) },
		func() error { return clientfeatures.AddVersionedFeaturesToExistingFeatureGates(clientGates{gate}) },
		func() error { return g.registry.Register(compatibility.DefaultKubeComponent, effective, gate) },
	} {
		g.err = errors.Join(g.err, add())
	}
	return g
}

func (g *gates) addFlags(fs *pflag.FlagSet) {
	g.registry.AddFlags(fs)
	g.given, _ = fs.Lookup("feature-gates").Value.(*cliflag.ColonSeparatedMultimapStringString)
}

// set makes the values given by flags effective. Nothing may ask a gate before. What is wrong with them validate tells.
func (g *gates) set() error {
	if g.err != nil {
		return fmt.Errorf("register feature gates: %w", g.err)
	}
	if g.given != nil {
		all := *g.given.Multimap
		defer func() { *g.given.Multimap = all }() // what /flagz shows
		*g.given.Multimap = maps.Clone(all)
		for _, component := range []string{"", compatibility.DefaultKubeComponent} {
			if settings, ok := all[component]; ok {
				(*g.given.Multimap)[component] = slices.DeleteFunc(slices.Clone(settings), g.ignore)
			}
		}
	}
	slices.Sort(g.ignored)
	g.ignored = slices.Compact(g.ignored)
	g.refused = g.registry.Set()
	return nil
}

// ignore reports whether the gate of a setting, name=value, is not one of this program, and records its name. Clusters
// give every component the same list of gates.
func (g *gates) ignore(setting string) bool {
	name, value, _ := strings.Cut(setting, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if _, ours := g.gate.GetAll()[featuregate.Feature(name)]; ours {
		return false
	}
	if _, err := strconv.ParseBool(value); err != nil {
		g.malformed = append(g.malformed, fmt.Errorf("--feature-gates: invalid value of %s=%s, err: %w", name, value, err))
	} else {
		g.ignored = append(g.ignored, name)
	}
	return true
}

// validate returns an error for each value that is not a boolean, each locked gate and each version that is not valid.
func (g *gates) validate() []error {
	errs := g.registry.Validate()
	if g.refused != nil {
		errs = []error{g.refused} // which Validate repeats
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("--feature-gates, --emulated-version, --min-compatibility-version: %w", err)
	}
	return slices.Concat(g.malformed, errs)
}

// useForLibraries hands the gates to the libraries that ask a global: client-go and the metrics package. It is called once
// the values are set and before the first client or histogram is made.
func (g *gates) useForLibraries() {
	clientfeatures.ReplaceFeatureGates(clientGates{g.gate})
	metricsfeatures.ApplyFeatureGates(g.gate)
	g.gate.AddMetrics()
	g.registry.AddMetrics()
}

// clientGates lets client-go register its gates in ours and ask ours for values: its types differ from component-base's
// in name only.
type clientGates struct {
	gate featuregate.MutableVersionedFeatureGate
}

// Enabled implements client-go's Gates.
func (c clientGates) Enabled(key clientfeatures.Feature) bool {
	return c.gate.Enabled(featuregate.Feature(key))
}

// AddVersioned implements client-go's VersionedRegistry.
func (c clientGates) AddVersioned(in map[clientfeatures.Feature]clientfeatures.VersionedSpecs) error {
	out := make(map[featuregate.Feature]featuregate.VersionedSpecs, len(in))
	for name, specs := range in {
		converted := make(featuregate.VersionedSpecs, 0, len(specs))
		for _, s := range specs {
			stage := featuregate.FeatureSpec{Default: s.Default, LockToDefault: s.LockToDefault, Version: s.Version}
			switch s.PreRelease {
			case clientfeatures.Alpha:
				stage.PreRelease = featuregate.Alpha
			case clientfeatures.Beta:
				stage.PreRelease = featuregate.Beta
			case clientfeatures.GA:
				stage.PreRelease = featuregate.GA
			case clientfeatures.Deprecated:
				stage.PreRelease = featuregate.Deprecated
			default:
				return fmt.Errorf("gate %s of client-go has the unknown stage %q", name, s.PreRelease)
			}
			converted = append(converted, stage)
		}
		out[featuregate.Feature(name)] = converted
	}
	// How this process reads a stream does not depend on which cluster version is emulated.
	out[AtomicFIFO] = fixed(true)
	return c.gate.AddVersioned(out)
}
