package caches

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hashLabel is no part of the template that a user writes.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// digestMark is the prefix of the UID of a template that was replaced by its digest. Templates of the API
// server have containers and are never taken for a digest.
const digestMark = "digest of the template:"

// TemplateDigest returns 32 bytes that are equal for two templates exactly if apimachinery's
// equality.Semantic finds the templates equal without the label pod-template-hash: nil is empty, and
// quantities and times count by value. It changes nothing in the template, not even the cached text of
// quantities.
func TemplateDigest(t *corev1.PodTemplateSpec) string {
	sum := digester{sha256.New()}
	sum.writeValue(reflect.ValueOf(WithoutHash(t)))
	return string(sum.Sum(nil))
}

// KeptDigest returns the [TemplateDigest] of a cached ReplicaSet without template. ok is false if the
// template is there.
func KeptDigest(rs *appsv1.ReplicaSet) (digest string, ok bool) {
	if len(rs.Spec.Template.Spec.Containers) > 0 {
		return "", false
	}
	return strings.CutPrefix(string(rs.Spec.Template.UID), digestMark)
}

// WithoutHash returns a template without the label pod-template-hash. It shares memory with the argument.
func WithoutHash(t *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	out := *t
	if _, ok := t.Labels[hashLabel]; ok {
		out.Labels = maps.Clone(t.Labels)
		delete(out.Labels, hashLabel)
	}
	return out
}

// digester writes values unambiguously. Types are known, so every value only has to show its end.
type digester struct{ hash.Hash }

func (d digester) writeValue(v reflect.Value) {
	// v.Interface() would copy every value to the heap.
	switch v.Type() {
	case reflect.TypeFor[resource.Quantity]():
		d.writeQuantity(v.Interface().(resource.Quantity))
		return
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		d.writeNumber(uint64(v.Interface().(interface{ UnixNano() int64 }).UnixNano()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			d.writeValue(v.Field(i))
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			d.writeNumber(0)
			return
		}
		d.writeNumber(1)
		d.writeValue(v.Elem())
	case reflect.Slice, reflect.Array:
		d.writeNumber(uint64(v.Len()))
		for i := range v.Len() {
			d.writeValue(v.Index(i))
		}
	case reflect.Map:
		d.writeNumber(uint64(v.Len()))
		keys := v.MapKeys() // API maps have string keys
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			d.writeValue(key)
			d.writeValue(v.MapIndex(key))
		}
	case reflect.String:
		d.writeString(v.String())
	case reflect.Int32, reflect.Int64:
		d.writeNumber(uint64(v.Int()))
	default:
		d.writeString(fmt.Sprint(v.Interface())) // bool; templates hold no other kinds
	}
}

// writeQuantity writes a number without trailing zeros.
func (d digester) writeQuantity(q resource.Quantity) {
	q = q.DeepCopy()
	number := q.AsDec()
	all := number.UnscaledBig().String()
	digits := strings.TrimRight(all, "0")
	d.writeString(digits)
	if digits != "" { // 0 is equal at any scale
		d.writeNumber(uint64(int(number.Scale()) - len(all) + len(digits)))
	}
}

func (d digester) writeString(s string) {
	d.writeNumber(uint64(len(s)))
	d.Write([]byte(s))
}

func (d digester) writeNumber(n uint64) {
	d.Write(binary.BigEndian.AppendUint64(nil, n))
}
