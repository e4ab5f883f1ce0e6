package deployment

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// vector is a template with the hashes of kube-controller-manager by collisionCount; "none" is nil.
// hack/kubernetes/hashes writes the file.
type vector struct {
	Name     string
	Template json.RawMessage
	Hashes   map[string]string
}

func vectors(t *testing.T) (vectors []vector) {
	t.Helper()
	data, err := os.ReadFile("testdata/hashes.json")
	if err == nil {
		err = json.Unmarshal(data, &vectors)
	}
	if err != nil || len(vectors) == 0 {
		t.Fatalf("read %d vectors: %v", len(vectors), err)
	}
	return vectors
}

// fromJSON and fromProtobuf decode a template as clients do.
func fromJSON(t *testing.T, data []byte) (template corev1.PodTemplateSpec) {
	t.Helper()
	if err := json.Unmarshal(data, &template); err != nil {
		t.Fatal(err)
	}
	return template
}

func fromProtobuf(t *testing.T, data []byte) (template corev1.PodTemplateSpec) {
	t.Helper()
	source := fromJSON(t, data)
	encoded, err := source.Marshal()
	if err == nil {
		err = template.Unmarshal(encoded)
	}
	if err != nil {
		t.Fatal(err)
	}
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
				if got := templateHash(fromJSON(t, v.Template), collisions); got != want {
					t.Errorf("from JSON, collisions %s: %s, want %s", key, got, want)
				}
				if got := templateHash(fromProtobuf(t, v.Template), collisions); got != want {
					t.Errorf("from protobuf, collisions %s: %s, want %s", key, got, want)
				}
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
	if _, err := first.Marshal(); err != nil {
		t.Fatal(err)
	}
	if again := newReplicaSet(d, nil, 1); again.Name != first.Name {
		t.Errorf("names %s and then %s", first.Name, again.Name)
	}
	before := templateHash(d.Spec.Template, nil)
	if _, err := d.Marshal(); err != nil {
		t.Fatal(err)
	}
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
		{"as long as a Deployment's can be", 253, 10, 242},
		{"a short hash leaves more", 253, 1, 251},
		{"a hash that leaves one character", 5, 251, 1},
		{"a hash that leaves none cuts nothing", 5, 252, 5},
	} {
		name, hash := strings.Repeat("d", tt.deployment), strings.Repeat("h", tt.hash)
		if got, want := replicaSetName(name, hash), fmt.Sprintf("%s-%s", name[:tt.want], hash); got != want {
			t.Errorf("%s: name %s, want %s", tt.name, got, want)
		}
	}
}
