// Package conversion sends requests for custom resources whose conversion webhook is unavailable. Objects
// that are stored in the requested version need no webhook.
package conversion

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SendInAnyVersion sends a request in the preferred version of a type and, if a conversion webhook failed, in the other
// served versions. If all fail, it returns the first error. Other failures are not retried: a change in an
// older version drops the fields of newer versions.
func SendInAnyVersion(preferred schema.GroupVersionResource, versions []string, send func(schema.GroupVersionResource) error) error {
	err := send(preferred)
	if !IsWebhookFailure(err) {
		return err
	}
	for _, version := range versions {
		if version == preferred.Version {
			continue
		}
		if err := send(preferred.GroupResource().WithVersion(version)); !IsWebhookFailure(err) {
			return err
		}
	}
	return err
}

// IsWebhookFailure reports whether an error is the failure of a conversion webhook. There is no code for it, so it
// compares the text of apiextensions-apiserver v0.37 (pkg/apiserver/conversion/webhook_converter.go).
func IsWebhookFailure(err error) bool {
	return err != nil && strings.Contains(err.Error(), "conversion webhook for ")
}
