package deployment

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
)

func TestNewReplicaSet(t *testing.T) {
	d := newDeployment(4, within(1, 0), annotated("kubernetes.io/change-cause", "v1"))
	d.Labels = map[string]string{"of": "the Deployment alone"}
	d.Spec.MinReadySeconds = 7
	d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}
	before := d.DeepCopy()
	got := newReplicaSet(d, []replicaSet{newOld("old", 4, 1, revision("2"))}, 1)

	hash := templateHash(d.Spec.Template, nil)
	labels := map[string]string{"app": "web", "pod-template-hash": hash}
	template := newTemplate("v1")
	template.Labels = labels
	want := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-" + hash, Labels: labels,
			Annotations: map[string]string{"kubernetes.io/change-cause": "v1", revisionAnnotation: "3", desiredReplicasAnnotation: "4", maxReplicasAnnotation: "5"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(1)), MinReadySeconds: 7, Template: template,
			Selector: &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: d.Spec.Selector.MatchExpressions},
		},
	}
	fakeapi.WantEqual(t, "ReplicaSet", got, want)
	got.Labels["a"], got.Spec.Template.Labels["a"], got.Spec.Selector.MatchLabels["a"] = "b", "c", "d"
	got.Spec.Template.Spec.Containers[0].Image = "other"
	fakeapi.WantEqual(t, "the Deployment shares memory with it", d, before)
	fakeapi.Want(t, "its own labels share no memory", got.Labels["a"]+got.Spec.Template.Labels["a"]+got.Spec.Selector.MatchLabels["a"], "bcd")
}

func TestNumbersInAnnotations(t *testing.T) {
	for _, tt := range []struct {
		text           string
		revision, size int64 // size -1: none
	}{
		{"0", 0, 0}, {"20", 20, 20}, {"2147483647", math.MaxInt32, math.MaxInt32}, {"2147483648", 2147483648, -1}, {"3546343826724305832", 3546343826724305832, -1}, {"9223372036854775807", math.MaxInt64, -1},
		{"9223372036854775808", 0, -1}, {"18446744073709551616", 0, -1}, {"", 0, -1}, {"-4", 0, -1}, {"two", 0, -1}, {"1.5", 0, -1}, {" 1", 0, -1},
	} {
		rs := newOld("a", 1, 1).rs
		rs.Annotations = map[string]string{revisionAnnotation: tt.text, desiredReplicasAnnotation: tt.text}
		fakeapi.Want(t, "revision of "+tt.text, revisionOf(rs.Annotations), tt.revision)
		if got, ok := sizeAnnotation(rs, desiredReplicasAnnotation); ok != (tt.size >= 0) || ok && int64(got) != tt.size {
			t.Errorf("%q is %d (%t), want %d", tt.text, got, ok, tt.size)
		}
	}
	largest := map[string]string{desiredReplicasAnnotation: "2147483647", maxReplicasAnnotation: "2147483647"}
	fakeapi.WantEqual(t, "largest size", sizeAnnotations(bounds{replicas: math.MaxInt32, surge: math.MaxInt32}), largest)
}

func TestAnnotationsOfTheNewReplicaSet(t *testing.T) {
	old := func(revs ...string) (sets []replicaSet) {
		for i, r := range revs {
			sets = append(sets, newOld("old-"+strconv.Itoa(i), 0, i, revision(r)))
		}
		return sets
	}
	for _, tt := range []struct {
		name       string
		deployment map[string]string
		has        map[string]string
		old        []replicaSet
		want       map[string]string // to write
	}{
		{"the first revision", nil, nil, nil, map[string]string{revisionAnnotation: "1"}},
		{"one more than all old ones", nil, nil, old("2", "7", "3"), map[string]string{revisionAnnotation: "8"}},
		{"it is the highest already", nil, map[string]string{revisionAnnotation: "9"}, old("2"), nil},
		{"undo: the number before goes into its history", nil, map[string]string{revisionAnnotation: "1"}, old("2"),
			map[string]string{revisionAnnotation: "3", revisionHistoryAnnotation: "1"}},
		{"undo again", nil, map[string]string{revisionAnnotation: "3", revisionHistoryAnnotation: "1"}, old("4"),
			map[string]string{revisionAnnotation: "5", revisionHistoryAnnotation: "1,3"}},
		{"a number that cannot be read is none, and is not remembered", nil, map[string]string{revisionAnnotation: "first"}, old("2"),
			map[string]string{revisionAnnotation: "3"}},
		{"the largest one stays", nil, map[string]string{revisionAnnotation: "1"}, old("9223372036854775807"),
			map[string]string{revisionAnnotation: "9223372036854775807", revisionHistoryAnnotation: "1"}},
		{"and is written once", nil, map[string]string{revisionAnnotation: "9223372036854775807"}, old("9223372036854775807"), nil},
		{"what users say is copied, empty values too", map[string]string{"kubernetes.io/change-cause": "v2", "empty": ""}, map[string]string{revisionAnnotation: "1"}, nil,
			map[string]string{"kubernetes.io/change-cause": "v2", "empty": ""}},
		{"what it has is not written again, and nothing is taken away", map[string]string{"a": "1"}, map[string]string{revisionAnnotation: "1", "a": "1", "b": "2"}, nil, nil},
		{"what is about the Deployment alone is not copied", map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "deprecated.deployment.rollback.to": "1",
			revisionAnnotation: "5", revisionHistoryAnnotation: "1", desiredReplicasAnnotation: "3", maxReplicasAnnotation: "3"},
			map[string]string{revisionAnnotation: "1"}, nil, nil},
	} {
		d := newDeployment(3)
		d.Annotations = tt.deployment
		got := missingFrom(tt.has, nextAnnotations(d, tt.has, tt.old))
		fakeapi.WantEqual(t, tt.name+": to write", got, tt.want)
	}
}

func TestHistoryOfRevisionsIsBounded(t *testing.T) {
	full := strings.Repeat("1234567,", 249) + "12345678" // 2,000
	for _, tt := range []struct{ name, history, want string }{
		{"the first", "", "9"},
		{"it fits", full[:1998], full[:1998] + ",9"},
		{"the oldest goes", full, full[8:] + ",9"},
		{"one that is too long goes", strings.Repeat("1", 2000), "9"},
	} {
		if got := appendRevision(tt.history, 9); got != tt.want || len(got) > 2000 {
			t.Errorf("%s: %d characters …%q, want %d …%q", tt.name, len(got), got[max(0, len(got)-20):], len(tt.want), tt.want[max(0, len(tt.want)-20):])
		}
	}
}

// vector is a template with the hashes of kube-controller-manager by collisionCount; "none" is nil.
// hack/kubernetes/hashes writes the file.
type vector struct {
	Name     string
	Template json.RawMessage
	Hashes   map[string]string
}

func vectors(t *testing.T) (vectors []vector) {
	t.Helper()
	fakeapi.NoError(t, json.Unmarshal(fakeapi.Must(os.ReadFile("testdata/hashes.json")), &vectors))
	if len(vectors) == 0 {
		t.Fatal("testdata/hashes.json has no vectors")
	}
	return vectors
}

// fromJSON and fromProtobuf decode a template as clients do.
func fromJSON(t *testing.T, data []byte) (template corev1.PodTemplateSpec) {
	t.Helper()
	fakeapi.NoError(t, json.Unmarshal(data, &template))
	return template
}

func fromProtobuf(t *testing.T, data []byte) (template corev1.PodTemplateSpec) {
	t.Helper()
	source := fromJSON(t, data)
	fakeapi.NoError(t, template.Unmarshal(fakeapi.Must(source.Marshal())))
	return template
}

func TestHashIsThatOfKubeControllerManager(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			if strings.Contains(v.Name, "time") && os.Getenv("TZ") != "UTC" {
				t.Skip("the zone of the process is part of the hash; set TZ=UTC")
			}
			for key, want := range v.Hashes {
				var collisions *int32
				if n, err := strconv.ParseInt(key, 10, 32); err == nil {
					collisions = new(int32(n))
				}
				fakeapi.Want(t, "hash from JSON, collisions "+key, templateHash(fromJSON(t, v.Template), collisions), want)
				fakeapi.Want(t, "hash from protobuf, collisions "+key, templateHash(fromProtobuf(t, v.Template), collisions), want)
			}
		})
	}
}

// TestMarshallingDoesNotChangeTheHash: marshalling a new ReplicaSet leaves the cached template, and so the hash.
// Marshalling a template changes the hash.
func TestMarshallingDoesNotChangeTheHash(t *testing.T) {
	d := newDeployment(1)
	for _, v := range vectors(t) {
		if v.Name == "size limit of a volume" {
			d.Spec.Template = fromProtobuf(t, v.Template)
		}
	}
	first := newReplicaSet(d, nil, 1)
	fakeapi.Must(first.Marshal())
	fakeapi.Want(t, "name after the first ReplicaSet was marshalled", newReplicaSet(d, nil, 1).Name, first.Name)
	before := templateHash(d.Spec.Template, nil)
	fakeapi.Must(d.Marshal())
	if after := templateHash(d.Spec.Template, nil); after == before {
		t.Errorf("marshalling no longer changes the hash %s: the copies are for nothing", after)
	}
}

func TestReplicaSetName(t *testing.T) {
	for _, tt := range []struct {
		name             string
		deployment, hash int // lengths
		want             int // characters of the Deployment's name
	}{
		{"short", 3, 10, 3},
		{"as long as it can be", 242, 10, 242},
		{"longer is cut", 243, 10, 242},
		{"a short hash leaves more", 253, 1, 251},
		{"a hash that leaves one character", 5, 251, 1},
		{"a hash that leaves none cuts nothing", 5, 252, 5},
	} {
		name, hash := strings.Repeat("d", tt.deployment), strings.Repeat("h", tt.hash)
		fakeapi.Want(t, tt.name+": name", replicaSetName(name, hash), fmt.Sprintf("%s-%s", name[:tt.want], hash))
	}
}

func TestSameTemplate(t *testing.T) {
	type edit = func(*corev1.PodTemplateSpec)
	hashed := func(hash string) edit {
		return func(t *corev1.PodTemplateSpec) {
			t.Labels = map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hash}
		}
	}
	for _, tt := range []struct {
		name string
		a, b edit
		want bool
	}{
		{"equal", func(*corev1.PodTemplateSpec) {}, func(*corev1.PodTemplateSpec) {}, true},
		{"only one has a hash", hashed("a"), func(*corev1.PodTemplateSpec) {}, true},
		{"other hashes", hashed("a"), hashed("b"), true},
		{"no labels, and none but the hash", func(t *corev1.PodTemplateSpec) { t.Labels = nil },
			func(t *corev1.PodTemplateSpec) {
				t.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "a"}
			}, true},
		{"another label", hashed("a"), func(t *corev1.PodTemplateSpec) { t.Labels = map[string]string{"app": "web", "more": ""} }, false},
		{"another value", hashed("a"), func(t *corev1.PodTemplateSpec) { t.Labels["app"] = "shop" }, false},
		{"an annotation", hashed("a"), func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{"restartedAt": "now"} }, false},
		{"annotations nil and empty", func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{} }, hashed("a"), true},
		{"a quantity written otherwise", func(t *corev1.PodTemplateSpec) {
			t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1000m")}
		}, func(t *corev1.PodTemplateSpec) {
			t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		}, true},
	} {
		a, b := newTemplate("v1"), newTemplate("v1")
		tt.a(&a)
		tt.b(&b)
		labels := len(a.Labels)
		fakeapi.Want(t, tt.name, sameTemplate(&a, &b), tt.want)
		fakeapi.Want(t, tt.name+": the other way round", sameTemplate(&b, &a), tt.want)
		if len(a.Labels) != labels {
			t.Errorf("%s: labels of a template were changed: %v", tt.name, a.Labels)
		}
	}
}

func TestOldestReplicaSetOfTheTemplateIsNew(t *testing.T) {
	young := newNext("young", 1)
	twin := newOld("twin-b", 1, 5)
	twin.current = true
	first := newOld("twin-a", 1, 5)
	first.current = true
	oldest := newOld("oldest", 1, 9)
	for _, order := range [][]replicaSet{{young, twin, first, oldest}, {oldest, first, twin, young}, {twin, oldest, young, first}} {
		in := newInput(newDeployment(1), order...)
		if !in.found || in.next.rs.Name != "twin-a" {
			t.Errorf("new is %q (%t), want twin-a", in.next.rs.Name, in.found)
		}
		if old := in.old; len(old) != 3 || old[0].rs.Name != "oldest" || old[1].rs.Name != "twin-b" || old[2].rs.Name != "young" {
			t.Errorf("old are %v", old)
		}
	}
	lone := newInput(newDeployment(1), oldest)
	fakeapi.Want(t, "without a new one: found, old", fmt.Sprint(lone.found, len(lone.old)), "false 1")
}
