package deployment

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

// sameTemplate reports whether two templates make the same pods: nil is empty, quantities and times are compared by value, and the label
// pod-template-hash does not count. It tells the ReplicaSet of a Deployment's present template, whoever named it and with whatever hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	if a == b {
		return true
	}
	return equality.Semantic.DeepEqual(caches.WithoutHash(a), caches.WithoutHash(b))
}

// templates is what was found out about the template of one Deployment at one generation, so that it need not be found out in every sync.
type templates struct {
	generation int64
	digest     string // empty: none was made
	compared   map[types.UID]comparison
}

// comparison is whether a ReplicaSet of a generation has the template.
type comparison struct {
	generation int64
	same       bool
}

// at forgets what was found out about another generation.
func (k *templates) at(d *appsv1.Deployment) *templates {
	if k.compared == nil || k.generation != d.Generation {
		*k = templates{generation: d.Generation, compared: map[types.UID]comparison{}}
	}
	return k
}

// digestOf is that of the template of the Deployment.
func (k *templates) digestOf(d *appsv1.Deployment) string {
	if k = k.at(d); k.digest == "" {
		k.digest = caches.TemplateDigest(&d.Spec.Template)
	}
	return k.digest
}

// isOf reports whether a ReplicaSet has the template of the Deployment. Of one that asks for no pods the cache has only a digest.
func (k *templates) isOf(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	if kept, ok := caches.KeptDigest(rs); ok {
		return kept == k.digestOf(d)
	}
	k = k.at(d)
	known, ok := k.compared[rs.UID]
	if !ok || known.generation != rs.Generation {
		known = comparison{rs.Generation, sameTemplate(&d.Spec.Template, &rs.Spec.Template)}
		k.compared[rs.UID] = known
	}
	return known.same
}

// forget drops what is known of ReplicaSets that are gone.
func (k *templates) forget(sets []*appsv1.ReplicaSet) {
	if len(k.compared) <= len(sets) {
		return
	}
	maps.DeleteFunc(k.compared, func(uid types.UID, _ comparison) bool {
		return !slices.ContainsFunc(sets, func(rs *appsv1.ReplicaSet) bool { return rs.UID == uid })
	})
}

// firstDifference names the first field in which two templates differ, as users write it; empty if they are the same.
func firstDifference(a, b *corev1.PodTemplateSpec) string {
	return strings.TrimPrefix(differenceAt("", reflect.ValueOf(caches.WithoutHash(a)), reflect.ValueOf(caches.WithoutHash(b))), ".")
}

func differenceAt(path string, a, b reflect.Value) string {
	if equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
		return ""
	}
	inner := ""
	switch {
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		inner = differenceAt(path, a.Elem(), b.Elem())
	case a.Kind() == reflect.Struct:
		for i := 0; i < a.NumField() && inner == ""; i++ {
			field := a.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() {
				continue
			}
			if name != "" {
				name = "." + name
			}
			inner = differenceAt(path+name, a.Field(i), b.Field(i))
		}
	case a.Kind() == reflect.Slice:
		for i := 0; i < min(a.Len(), b.Len()) && inner == ""; i++ {
			inner = differenceAt(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))
		}
		if inner == "" && a.Len() != b.Len() {
			inner = fmt.Sprintf("%s[%d]", path, min(a.Len(), b.Len()))
		}
	case a.Kind() == reflect.Map:
		keys := append(a.MapKeys(), b.MapKeys()...)
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, key := range keys {
			x, y := a.MapIndex(key), b.MapIndex(key)
			if !x.IsValid() || !y.IsValid() || !equality.Semantic.DeepEqual(x.Interface(), y.Interface()) {
				return fmt.Sprintf("%s[%s]", path, key)
			}
		}
	}
	if inner == "" {
		return path
	}
	return inner
}
