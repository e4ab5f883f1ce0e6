// Package conversion works on custom resources whose conversion webhook is away. What is stored in the version that is asked for needs no webhook.
package conversion

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Try sends a request in the preferred version of a type and, if a conversion webhook has failed, in the other versions in which it is served. The error is that of
// the first if none works. After no other failure, because a change in an older version takes away the fields that only a newer one has.
func Try(preferred schema.GroupVersionResource, versions []string, send func(schema.GroupVersionResource) error) error {
	err := send(preferred)
	if !Failed(err) {
		return err
	}
	for _, version := range versions {
		if version == preferred.Version {
			continue
		}
		if err := send(preferred.GroupResource().WithVersion(version)); !Failed(err) {
			return err
		}
	}
	return err
}

// Failed reports whether an error says that a conversion webhook has failed, in the words of apiextensions-apiserver v0.37
// (pkg/apiserver/conversion/webhook_converter.go). There is no code for it.
func Failed(err error) bool {
	return err != nil && strings.Contains(err.Error(), "conversion webhook for ")
}
