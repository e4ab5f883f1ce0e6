// Package gates holds the feature gates that several controllers have.
package gates

import (
	apiversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
)

// TerminatingReplicas is upstream's gate for status.terminatingReplicas of ReplicaSets and Deployments.
const TerminatingReplicas featuregate.Feature = "DeploymentReplicaSetTerminatingReplicas"

// TerminatingReplicasStages returns the stages of the gate in kube-controller-manager v1.37.
func TerminatingReplicasStages() featuregate.VersionedSpecs {
	return featuregate.VersionedSpecs{
		{Version: apiversion.MajorMinor(1, 33), Default: false, PreRelease: featuregate.Alpha},
		{Version: apiversion.MajorMinor(1, 35), Default: true, PreRelease: featuregate.Beta},
	}
}
