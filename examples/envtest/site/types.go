package site

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of [Site].
var GroupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// AddToScheme makes the types known.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Site{})
	s.AddKnownTypeWithName(GroupVersion.WithKind("SiteList"), &List{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Site is a page that some pods serve.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitzero"`
}

// Spec is the page and the number of pods.
type Spec struct {
	Page     string `json:"page"`
	Replicas int32  `json:"replicas"`
}

// Status counts the ready pods.
type Status struct {
	Ready int32 `json:"ready,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *Site) DeepCopyObject() runtime.Object {
	c := *s
	c.ObjectMeta = *s.ObjectMeta.DeepCopy()
	return &c
}

// List is a list of Sites.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Site `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	c := List{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Site))
	}
	return &c
}
