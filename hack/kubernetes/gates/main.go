// Command gates writes pkg/app/gates.txt: the feature gates that kube-controller-manager of this version accepts, those
// of all components, because clusters give all components the same list.
//
//	cd hack/kubernetes && GOWORK=off go run ./gates >../../pkg/app/gates.txt
package main

import (
	"fmt"
	"maps"
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/version"
	_ "k8s.io/kubernetes/pkg/features" // registers them
)

func main() {
	fmt.Printf("# The feature gates of Kubernetes %s, those of all components; made by hack/kubernetes/gates.\n", version.DefaultKubeBinaryVersion)
	for _, name := range slices.Sorted(maps.Keys(utilfeature.DefaultMutableFeatureGate.GetAll())) {
		fmt.Println(name)
	}
}
