// Package ownerpatch makes the patches with which a controller adopts and releases objects, and keeps what
// was refused.
package ownerpatch

import (
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/outcome"
)

// patch is a strategic merge patch of one owner reference. With the object's UID and version in it the API
// server refuses the patch if another object has the name by now, or if the object has changed since it was
// judged.
type patch struct {
	Metadata struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
		OwnerReferences []any     `json:"ownerReferences"`
	} `json:"metadata"`
}

// Adopt makes ref a reference of the object. References to others stay; one to the same owner that is no
// controller reference becomes one.
func Adopt(object metav1.Object, ref *metav1.OwnerReference) ([]byte, error) {
	return marshal(object, ref)
}

// Release removes the reference to an owner.
func Release(object metav1.Object, owner types.UID) ([]byte, error) {
	return marshal(object, struct {
		Patch string    `json:"$patch"`
		UID   types.UID `json:"uid"`
	}{"delete", owner})
}

func marshal(object metav1.Object, ref any) ([]byte, error) {
	var p patch
	p.Metadata.UID, p.Metadata.ResourceVersion, p.Metadata.OwnerReferences = object.GetUID(), object.GetResourceVersion(), []any{ref}
	return json.Marshal(p)
}

// Refused reports whether a reply to a patch is about this one object and would be the same if asked again.
func Refused(err error) bool {
	return outcome.FromError(err) == outcome.Rejected && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err))
}
