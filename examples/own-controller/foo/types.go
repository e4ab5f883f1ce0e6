package foo

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Foos is the resource of deploy/crd.yaml.
var Foos = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "foos"}

// Foo describes a Deployment.
type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitzero"`
}

// Spec is the desired state.
type Spec struct {
	DeploymentName string `json:"deploymentName"`
	Image          string `json:"image"`
	Replicas       int32  `json:"replicas"`
}

// Status is the observed state.
type Status struct {
	AvailableReplicas int32 `json:"availableReplicas"`
}

// FooList is a list of Foos.
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Foo `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (f *Foo) DeepCopyObject() runtime.Object {
	out := *f
	f.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *FooList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Foo, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Foo)
	}
	return &out
}

// scheme knows Foo and FooList.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(Foos.GroupVersion(), &Foo{}, &FooList{})
	metav1.AddToGroupVersion(s, Foos.GroupVersion())
	return s
}
