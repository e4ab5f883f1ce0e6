package caches

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/randfill"

	"minikcm/internal/fakeapi"
)

// filler fills values at random: most fields are empty, and equal values are frequent.
type filler struct {
	*rand.Rand
	*randfill.Filler
}

var quantities = []string{"1", "1000m", "1e3", "1k", "1Ki", "1024", "0", "0.0", "-1", "-1000m", "12345678901234567890", "0.5", "500m", "10"}

func newFiller() filler {
	rnd := rand.New(rand.NewSource(1))
	zones := []*time.Location{time.UTC, time.FixedZone("x", 3600)}
	return filler{rnd, randfill.NewWithSeed(1).NilChance(.8).NumElements(0, 2).Funcs(
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = resource.MustParse(quantities[rnd.Intn(len(quantities))])
		},
		func(at *metav1.Time, _ randfill.Continue) {
			*at = metav1.NewTime(time.Unix(int64(rnd.Intn(2)), 0).In(zones[rnd.Intn(2)]))
		},
		func(s *string, _ randfill.Continue) { *s = []string{"", "a", "b"}[rnd.Intn(3)] },
	)}
}

// changeField fills a random field of a struct again, for example with another text of the same value.
func (f filler) changeField(v reflect.Value) {
	leaf := v.Type() == reflect.TypeFor[resource.Quantity]() || v.Type() == reflect.TypeFor[metav1.Time]()
	switch {
	case !leaf && v.Kind() == reflect.Struct && v.NumField() > 0 && v.Type().Field(0).IsExported():
		f.changeField(v.Field(f.Intn(v.NumField())))
	case v.Kind() == reflect.Pointer && !v.IsNil() && f.Intn(5) > 0:
		f.changeField(v.Elem())
	case v.Kind() == reflect.Slice && v.Len() > 0 && f.Intn(5) > 0:
		f.changeField(v.Index(f.Intn(v.Len())))
	case v.CanAddr():
		f.Fill(v.Addr().Interface())
	}
}

// TestDigestsAreEqualExactlyIfTemplatesAre over many pairs of templates that differ in one value, or only in
// the text of a value.
func TestDigestsAreEqualExactlyIfTemplatesAre(t *testing.T) {
	f := newFiller()
	same, different := 0, 0
	for range 200 {
		var a corev1.PodTemplateSpec
		f.Fill(&a)
		bare, digest := WithoutHash(&a), TemplateDigest(&a)
		for range 10 {
			b := *a.DeepCopy()
			for range f.Intn(3) {
				f.changeField(reflect.ValueOf(&b).Elem())
			}
			want := equality.Semantic.DeepEqual(bare, WithoutHash(&b))
			if got := digest == TemplateDigest(&b); got != want {
				t.Fatalf("digests equal %t, templates %t:\n%#v\n%#v", got, want, a, b)
			}
			if want {
				same++
			} else {
				different++
			}
		}
	}
	if same < 200 || different < 200 {
		t.Errorf("%d pairs are equal and %d are not, want many of both", same, different)
	}
}

func TestDigestsOfQuantities(t *testing.T) {
	digest := func(q resource.Quantity) string {
		return TemplateDigest(&corev1.PodTemplateSpec{Spec: corev1.PodSpec{Overhead: corev1.ResourceList{"cpu": q}}})
	}
	for _, a := range quantities {
		for _, b := range quantities {
			a, b := resource.MustParse(a), resource.MustParse(b)
			fakeapi.Want(t, a.String()+" equals "+b.String(), digest(a) == digest(b), a.Cmp(b) == 0)
		}
	}
}

// TestDigestsChangeNothing: the text of a quantity is part of the hash of a template.
func TestDigestsChangeNothing(t *testing.T) {
	size := *resource.NewQuantity(512<<20, resource.BinarySI)
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}}}}
	before := fmt.Sprintf("%#v", *template.Spec.Volumes[0].EmptyDir.SizeLimit)
	fakeapi.Want(t, "bytes of a digest", len(TemplateDigest(&template)), 32)
	fakeapi.Want(t, "quantity after the digest", fmt.Sprintf("%#v", *template.Spec.Volumes[0].EmptyDir.SizeLimit), before)
}

// A type without a digest would be printed.
func TestEveryTypeInATemplateHasADigest(t *testing.T) {
	known := map[reflect.Type]bool{reflect.TypeFor[resource.Quantity](): true, reflect.TypeFor[metav1.Time](): true, reflect.TypeFor[metav1.MicroTime](): true}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if known[typ] {
			return
		}
		known[typ] = true
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				if !typ.Field(i).IsExported() {
					t.Errorf("%v has the unexported field %s", typ, typ.Field(i).Name)
					continue
				}
				walk(typ.Field(i).Type)
			}
		case reflect.Pointer, reflect.Slice:
			walk(typ.Elem())
		case reflect.Map:
			if typ.Key().Kind() != reflect.String {
				t.Errorf("%v has keys that are no strings", typ)
			}
			walk(typ.Elem())
		case reflect.Interface, reflect.Func, reflect.Chan, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
			t.Errorf("%v is in a template", typ)
		}
	}
	walk(reflect.TypeFor[corev1.PodTemplateSpec]())
}

// TestReplicaSetsKeepADigestIfDeploymentsAreWatched: ReplicaSets with replicas keep the template.
func TestReplicaSetsKeepADigestIfDeploymentsAreWatched(t *testing.T) {
	labels := map[string]string{"app": "web", hashLabel: "abc"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeName: "n"}}
	named := func(name string, replicas int32, owner ...metav1.OwnerReference) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web", hashLabel: "abc"}, OwnerReferences: owner},
			Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Template: *template.DeepCopy()}}
	}
	ref := metav1.OwnerReference{Kind: "Deployment", Name: "web", UID: types.UID("web"), Controller: new(true)}
	for _, watched := range []bool{true, false} {
		fakeapi.Bubble(t, fmt.Sprint("Deployments watched ", watched), func(t *testing.T) {
			c := New(fake.NewClientset(named("old", 0, ref), named("next", 1, ref), named("orphan", 0)), Config{})
			sets := fakeapi.Must(c.ReplicaSets())
			if watched { // later than the ReplicaSets, as the order of controllers may be
				fakeapi.Must(c.Deployments())
			}
			defer fakeapi.FillCaches(t, c)()
			owned := sets.ControlledBy("web")
			if len(owned) != 2 || len(sets.Claimable("shop", "web")) != 3 || len(sets.Claimable("other", "none")) != 0 {
				t.Errorf("%d owned and %d claimable, want 2 and 3", len(owned), len(sets.Claimable("shop", "web")))
			}
			for _, rs := range owned {
				digest, ok := KeptDigest(rs)
				if want := watched && rs.Name == "old"; ok != want || ok && digest != TemplateDigest(&template) {
					t.Errorf("digest of %s kept %t, want %t and that of the template", rs.Name, ok, want)
				}
			}
		})
	}
}

// TestTrimReplicaSet trims twice: client-go hands over the objects of a streamed list a second time.
func TestTrimReplicaSet(t *testing.T) {
	ordinary := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", hashLabel: "abc"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:v1"}}}}
	marked := *ordinary.DeepCopy()
	marked.UID = digestMark + "made up"
	for _, template := range []corev1.PodTemplateSpec{ordinary, marked} {
		// Without a number the count is 1.
		for said, replicas := range map[string]*int32{"no": nil, "0": new(int32(0)), "1": new(int32(1))} {
			for _, digest := range []bool{true, false} {
				name := fmt.Sprintf("UID %q, %s replicas, digest %t", template.UID, said, digest)
				rs := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: replicas, Template: *template.DeepCopy()}, Status: appsv1.ReplicaSetStatus{Replicas: 3}}
				rs.Annotations, rs.ManagedFields = map[string]string{"kept": "yes"}, []metav1.ManagedFieldsEntry{{}}
				trimReplicaSet(rs, digest)
				once := rs.DeepCopy()
				trimReplicaSet(rs, digest)
				fakeapi.WantEqual(t, name+", trimmed twice", rs, once)
				empty := replicas != nil && *replicas == 0
				if kept, ok := KeptDigest(rs); ok != (digest && empty) || ok && kept != TemplateDigest(&template) {
					t.Errorf("%s: kept %x, %t", name, kept, ok)
				}
				if trimmed := rs.Spec.Template.Spec.Containers == nil; trimmed != empty || rs.Spec.Template.Labels["app"] != "web" {
					t.Errorf("%s: template %+v", name, rs.Spec.Template)
				}
				if rs.ManagedFields != nil || rs.Annotations["kept"] != "yes" || rs.Status.Replicas != 3 {
					t.Errorf("%s: the rest is %+v, want it as it was but for managed fields", name, rs)
				}
			}
		}
	}
}
