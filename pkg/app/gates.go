package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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

// oldestEmulation returns the lowest value of --emulated-version: three minor versions back, as upstream.
func oldestEmulation() *apiversion.Version { return apiversion.MajorMinor(1, 34) }

// gates holds the feature gates of a command, and the versions that the gates depend on.
type gates struct {
	gate     featuregate.MutableVersionedFeatureGate
	version  compatibility.MutableEffectiveVersion
	registry compatibility.ComponentGlobalsRegistry
	err      error // of the registration of all gates

	given    *cliflag.ColonSeparatedMultimapStringString // value of --feature-gates, by component
	ignored  []string                                    // unknown gates, sorted
	rejected error                                       // of known gates
}

// newGates returns all gates at their defaults: those of the manager, of its controllers, and of client-go,
// logging, metrics and z-pages.
func newGates(controllers []controller.Registration) *gates {
	specs := map[featuregate.Feature]featuregate.VersionedSpecs{
		"SeparateTaintEvictionController":                  lockedTo(true),
		"StaleControllerConsistencyReplicaSet":             lockedTo(true),
		"NodeControllerLeaseCircuitBreaker":                lockedTo(true),
		"PreferSameTrafficDistribution":                    lockedTo(true),
		"ControllerManagerReleaseLeaderElectionLockOnExit": lockedTo(true),
		"CoordinatedLeaderElection":                        lockedTo(false),
	}
	for _, c := range controllers {
		maps.Copy(specs, c.Gates)
	}
	oldest := oldestEmulation().String()
	gate := featuregate.NewVersionedFeatureGate(apiversion.MustParse(baseversion.DefaultKubeBinaryVersion))
	effective := compatibility.NewEffectiveVersionFromString(baseversion.DefaultKubeBinaryVersion, oldest, oldest)
	registry := compatibility.NewComponentGlobalsRegistry()
	err := errors.Join(
		gate.AddVersioned(specs),
		logsapi.AddFeatureGates(gate),
		metricsfeatures.AddFeatureGates(gate),
		zpagesfeatures.AddFeatureGates(gate),
		clientfeatures.AddVersionedFeaturesToExistingFeatureGates(clientGates{gate}),
		registry.Register(compatibility.DefaultKubeComponent, effective, gate),
	)
	return &gates{gate: gate, version: effective, registry: registry, err: err}
}

// lockedTo returns the stages of a gate for a behaviour that this program always or never has. A manifest that
// sets the gate to the opposite is rejected.
func lockedTo(on bool) featuregate.VersionedSpecs {
	return featuregate.VersionedSpecs{{
		Version: oldestEmulation(), Default: on, LockToDefault: true, PreRelease: featuregate.GA,
	}}
}

func (g *gates) addFlags(fs *pflag.FlagSet) {
	g.registry.AddFlags(fs)
	g.given, _ = fs.Lookup("feature-gates").Value.(*cliflag.ColonSeparatedMultimapStringString)
}

// Gate returns the set of all feature gates.
func (g *gates) Gate() featuregate.FeatureGate { return g.gate }

// SetGates makes the given feature gates effective, after the flags of [Options.Flags] were parsed. No gate may be
// read before. [Options.Validate] returns the invalid settings.
func (g *gates) SetGates() error {
	if g.err != nil {
		return fmt.Errorf("register feature gates: %w", g.err)
	}
	all := *g.given.Multimap
	defer func() { *g.given.Multimap = all }() // /flagz shows all given gates
	*g.given.Multimap = maps.Clone(all)
	for _, component := range []string{"", compatibility.DefaultKubeComponent} {
		if settings, ok := all[component]; ok {
			(*g.given.Multimap)[component] = slices.DeleteFunc(slices.Clone(settings), g.ignoreUnknown)
		}
	}
	slices.Sort(g.ignored)
	g.ignored = slices.Compact(g.ignored)
	g.rejected = g.registry.Set()
	return nil
}

// ignoreUnknown reports whether a setting, name=value, names a gate that this program does not have, and records the
// name. Clusters pass the same list of gates to every component.
func (g *gates) ignoreUnknown(setting string) bool {
	name, _, _ := strings.Cut(setting, "=")
	name = strings.TrimSpace(name)
	_, known := g.gate.GetAll()[featuregate.Feature(name)]
	if !known {
		g.ignored = append(g.ignored, name)
	}
	return !known
}

// validateGates returns the errors of known gates and of versions.
func (g *gates) validateGates() []error {
	errs := g.registry.Validate()
	if g.rejected != nil {
		errs = []error{g.rejected} // contained in errs
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("--feature-gates, --emulated-version, --min-compatibility-version: %w", err)
	}
	return errs
}

// UseGatesForLibraries sets the gates of client-go and of the metrics package, which are global variables.
// Only a process that is a controller manager calls it, once, after [Options.SetGates] and before the first
// client is built.
func (g *gates) UseGatesForLibraries() {
	clientfeatures.ReplaceFeatureGates(clientGates{g.gate})
	metricsfeatures.ApplyFeatureGates(g.gate)
	g.gate.AddMetrics()
	g.registry.AddMetrics()
}

// clientGates adapts the gates to client-go, which registers and reads its gates through types of its own.
type clientGates struct {
	gate featuregate.MutableVersionedFeatureGate
}

// Enabled implements client-go's Gates.
func (c clientGates) Enabled(key clientfeatures.Feature) bool {
	return c.gate.Enabled(featuregate.Feature(key))
}

// AddVersioned implements client-go's VersionedRegistry.
func (c clientGates) AddVersioned(in map[clientfeatures.Feature]clientfeatures.VersionedSpecs) error {
	stages := map[string]featuregate.FeatureSpec{
		string(clientfeatures.Alpha):      {PreRelease: featuregate.Alpha},
		string(clientfeatures.Beta):       {PreRelease: featuregate.Beta},
		string(clientfeatures.GA):         {PreRelease: featuregate.GA},
		string(clientfeatures.Deprecated): {PreRelease: featuregate.Deprecated},
	}
	out := make(map[featuregate.Feature]featuregate.VersionedSpecs, len(in))
	for name, specs := range in {
		var converted featuregate.VersionedSpecs
		for _, s := range specs {
			spec, ok := stages[string(s.PreRelease)]
			if !ok {
				return fmt.Errorf("gate %s of client-go has the unknown stage %q", name, s.PreRelease)
			}
			spec.Default, spec.LockToDefault, spec.Version = s.Default, s.LockToDefault, s.Version
			converted = append(converted, spec)
		}
		out[featuregate.Feature(name)] = converted
	}
	// Caches need AtomicFIFO, which needs InOrderInformers, to return the version that a store has reached. The
	// emulated version does not change that.
	out["AtomicFIFO"], out["InOrderInformers"] = lockedTo(true), lockedTo(true)
	return c.gate.AddVersioned(out)
}
