package replicaset

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestWritesLeaveTheCachedReplicaSetAlone: protobuf marshalling notes the text of a quantity in the quantity,
// so a marshalled pod must not share memory with the cache or with concurrent creates
// (race detector).
func TestWritesLeaveTheCachedReplicaSetAlone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	withVolume := func(rs *appsv1.ReplicaSet) {
		size := resource.MustParse("512Mi") // without text, as from the API server
		rs.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}}
	}
	for _, tt := range []struct {
		name string
		rs   *appsv1.ReplicaSet
	}{
		{"creates and the status", newSet(8, withVolume)},
		{"the status alone", newSet(0, withVolume)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.rs)
			b.Client = client
			b.backoffs.batchSize = 8
			before := tt.rs.DeepCopy()
			if _, err := b.run(t.Context()); err == nil {
				t.Error("no error, so nothing was sent")
			}
			if !reflect.DeepEqual(before, tt.rs) {
				t.Errorf("the cached ReplicaSet was written to: volumes are %#v, were %#v",
					tt.rs.Spec.Template.Spec.Volumes[0].EmptyDir.SizeLimit, before.Spec.Template.Spec.Volumes[0].EmptyDir.SizeLimit)
			}
		})
	}
}
