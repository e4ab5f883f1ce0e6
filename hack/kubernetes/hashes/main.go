// Command hashes writes the vectors that our pod-template-hash is tested with: templates, and what kube-controller-manager of this version
// makes of them.
//
//	cd hack/kubernetes && TZ=UTC GOWORK=off go run ./hashes >../../pkg/controllers/deployment/testdata/hashes.json
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/controller"
)

// Vector is a template as JSON, and its hash by collisionCount; the key "none" stands for none.
type Vector struct {
	Name     string            `json:"name"`
	Template json.RawMessage   `json:"template"`
	Hashes   map[string]string `json:"hashes"`
}

var templates = []struct{ name, template string }{
	{"empty", `{}`},
	{"one container", `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx:1.29"}]}}`},
	{"one container after the API server's defaults", `{"metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"name":"web",
		"image":"nginx:1.29","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],
		"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}}`},
	{"labels and annotations", `{"metadata":{"labels":{"c":"3","a":"1","b":"2"},"annotations":{"z":"26","y":"25","x":"24"}}}`},
	{"a label pod-template-hash of the user's", `{"metadata":{"labels":{"app":"web","pod-template-hash":"mine"}}}`},
	{"quantities", `{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"500m","memory":"512Mi","example.com/a":"0.5","example.com/b":"1e3"},
		"limits":{"cpu":"1","memory":"1Gi","ephemeral-storage":"0"}}}]}}`},
	{"size limit of a volume", `{"spec":{"volumes":[{"name":"tmp","emptyDir":{"sizeLimit":"512Mi","medium":"Memory"}}],"containers":[{"name":"a"}]}}`},
	{"environment", `{"spec":{"containers":[{"name":"a","env":[{"name":"IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}},
		{"name":"MEM","valueFrom":{"resourceFieldRef":{"resource":"limits.memory","divisor":"1Mi"}}},
		{"name":"KEY","valueFrom":{"secretKeyRef":{"name":"s","key":"k","optional":true}}}],"envFrom":[{"configMapRef":{"name":"c"}}]}]}}`},
	{"probes and security", `{"spec":{"securityContext":{"runAsUser":1000,"fsGroup":2000,"runAsNonRoot":true},"containers":[{"name":"a",
		"ports":[{"containerPort":80,"protocol":"TCP"}],"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}},
		"livenessProbe":{"httpGet":{"path":"/","port":80,"scheme":"HTTP"},"periodSeconds":10},
		"readinessProbe":{"tcpSocket":{"port":"http"},"timeoutSeconds":1},"lifecycle":{"preStop":{"exec":{"command":["sleep","5"]}}}}]}}`},
	{"affinity, spread and tolerations", `{"spec":{"containers":[{"name":"a"}],"nodeSelector":{"disk":"ssd"},
		"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"podAffinityTerm":{"topologyKey":"zone",
		"labelSelector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"t","operator":"In","values":["x","y"]}]}}}]}},
		"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"app":"web"}}}],
		"tolerations":[{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":6000}]}}`},
	{"letters beyond ASCII", `{"metadata":{"annotations":{"note":"größer als 日本 \u00e9 \\ \" \n"}},"spec":{"containers":[{"name":"a","args":["ünï"]}]}}`},
	{"a creation time", `{"metadata":{"creationTimestamp":"2026-07-01T12:00:00Z","labels":{"app":"web"}}}`},
}

func main() {
	counts := map[string]*int32{"none": nil}
	for _, n := range []int32{0, 1, 2, math.MaxInt32} {
		counts[fmt.Sprint(n)] = &n
	}
	var vectors []Vector
	for _, t := range templates {
		v := Vector{Name: t.name, Hashes: map[string]string{}}
		// As the API server tells it: quantities in their canonical form.
		var template corev1.PodTemplateSpec
		check(json.Unmarshal([]byte(t.template), &template))
		var err error
		v.Template, err = json.Marshal(template)
		check(err)
		for key, count := range counts {
			var template corev1.PodTemplateSpec
			check(json.Unmarshal(v.Template, &template))
			v.Hashes[key] = controller.ComputeHash(&template, count)
		}
		vectors = append(vectors, v)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "\t")
	check(out.Encode(vectors))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
