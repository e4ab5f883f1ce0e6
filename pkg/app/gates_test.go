package app

import (
	"strings"
	"testing"

	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"

	"minikcm/internal/fakeapi"
)

// Defaults are literals here, so that the test fails if a library changes a default.
func TestGateDefaults(t *testing.T) {
	want := map[featuregate.Feature]bool{
		"PodDeletionCost": true, "DeploymentReplicaSetTerminatingReplicas": true, "PreferSameTrafficDistribution": true,
		"SeparateTaintEvictionController": true, "StaleControllerConsistencyReplicaSet": true, "NodeControllerLeaseCircuitBreaker": true,
		"ControllerManagerReleaseLeaderElectionLockOnExit": true, "CoordinatedLeaderElection": false,
		"AtomicFIFO": true, "InOrderInformers": true, "InformerResourceVersion": true, "UnlockWhileProcessingFIFO": true, "InOrderInformersBatchProcess": true, "WatchListClient": true,
		"ClientsAllowCBOR": false, "ClientsPreferCBOR": false, "ClientsAllowTLSCacheGC": true, "ClientsAllowCARotation": true,
		"ContextualLogging": true, "LoggingBetaOptions": true, "LoggingAlphaOptions": false, "NativeHistograms": true,
		"ComponentFlagz": true, "ComponentStatusz": true, "AllAlpha": false, "AllBeta": false,
	}
	got := map[featuregate.Feature]bool{}
	g := parsed(t).gates
	for f := range g.gate.GetAll() {
		got[f] = g.gate.Enabled(f)
	}
	fakeapi.WantEqual(t, "gates", got, want)
}

func TestGates(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want map[featuregate.Feature]bool
	}{
		{"several flags", []string{"--feature-gates=kube:PodDeletionCost=false", "--feature-gates=kube:WatchListClient=false"}, map[featuregate.Feature]bool{"PodDeletionCost": false, "WatchListClient": false}},
		{"asking for what is fixed", []string{"--feature-gates=CoordinatedLeaderElection=false,SeparateTaintEvictionController=true"}, map[featuregate.Feature]bool{"CoordinatedLeaderElection": false}},
		{"all beta off keeps what is fixed", []string{"--feature-gates=AllBeta=false"}, map[featuregate.Feature]bool{"AtomicFIFO": true, "SeparateTaintEvictionController": true, "PodDeletionCost": false}},
		{"all beta on keeps what is fixed", []string{"--feature-gates=AllBeta=true,AllAlpha=true"}, map[featuregate.Feature]bool{"CoordinatedLeaderElection": false, "ClientsAllowCBOR": true}},
		{"the oldest version", []string{"--emulated-version=1.34"}, map[featuregate.Feature]bool{"DeploymentReplicaSetTerminatingReplicas": false, "PodDeletionCost": true, "AtomicFIFO": true, "InOrderInformers": true}},
		{"a version between", []string{"--emulated-version=kube=1.35"}, map[featuregate.Feature]bool{"DeploymentReplicaSetTerminatingReplicas": true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := parsed(t, tt.args...)
			if errs := o.Validate(); len(errs) > 0 {
				t.Fatal(errs)
			}
			for f, want := range tt.want {
				fakeapi.Want(t, string(f), o.gates.gate.Enabled(f), want)
				fakeapi.Want(t, string(f)+" of client-go", (clientGates{o.gates.gate}).Enabled(clientfeatures.Feature(f)), want)
			}
		})
	}
}

// Clusters give every component the same list of gates.
func TestUnknownGatesAreIgnored(t *testing.T) {
	const versions = "--feature-gates, --emulated-version, --min-compatibility-version: "
	for _, tt := range []struct {
		name     string
		args     []string
		ignored  []string
		problems []string
	}{
		{"twice, by component, beside ours", []string{"--feature-gates=kube:MemoryQoS=1,kube:PodDeletionCost=false", "--feature-gates=kube: GracefulNodeShutdown=false,kube:MemoryQoS=true"}, []string{"GracefulNodeShutdown", "MemoryQoS"}, nil},
		{"of earlier versions of this program", []string{"--feature-gates=FencedWrites=false,LeaseWatch=false,WatchLiveness=false,VerifyFirstWrite=false"}, []string{"FencedWrites", "LeaseWatch", "VerifyFirstWrite", "WatchLiveness"}, nil},
		{"of no component", []string{"--feature-gates=Typo=maybe,PodDeletionCost=false,Bogus"}, []string{"Bogus", "Typo"}, nil},
		{"beside a locked gate", []string{"--feature-gates=Bogus=true,AtomicFIFO=false"}, []string{"Bogus"}, []string{versions + "cannot set feature gate AtomicFIFO to false"}},
		{"for an unknown component", []string{"--feature-gates=wardle:GracefulNodeShutdown=true"}, nil, []string{versions + "component not registered: wardle"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := parsed(t, tt.args...)
			fakeapi.WantEqual(t, "ignored gates", o.gates.ignored, tt.ignored)
			errs := o.Validate()
			for i, want := range tt.problems {
				if i >= len(errs) || !strings.HasPrefix(errs[i].Error(), want) {
					t.Errorf("problem %d of %v does not begin with %q", i, errs, want)
				}
			}
			fakeapi.Want(t, "number of problems", len(errs), len(tt.problems))
		})
	}
}
