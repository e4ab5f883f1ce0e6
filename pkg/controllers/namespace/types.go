package namespace

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/internal/discovery"
)

// deletable selects the types of what may have to be deleted with a namespace.
func deletable(api metav1.APIResource) bool {
	return api.Namespaced && slices.Contains(api.Verbs, "delete")
}

// others are the discovered types without pods.
func others(a discovery.Answer) []discovery.Type {
	return slices.DeleteFunc(slices.Clone(a.Types), func(t discovery.Type) bool {
		return t.GroupResource() == discovery.Pods.GroupResource()
	})
}
