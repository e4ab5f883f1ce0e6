package garbagecollector

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
)

var (
	began = time.Unix(1e9, 0)

	// discovered holds the types of these tests.
	discovered = newKindIndex(began, map[string]bool{"down.example.com": true},
		apiType{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, kind: "ConfigMap", namespaced: true, versions: []string{"v1"}, local: true},
		apiType{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, kind: "Node", versions: []string{"v1"}, local: true},
		apiType{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}, kind: "Widget", namespaced: true, versions: []string{"v2", "v1"}, local: true},
		apiType{GroupVersionResource: schema.GroupVersionResource{Group: "far.example.com", Version: "v1", Resource: "things"}, kind: "Thing", namespaced: true, versions: []string{"v1", "v1beta1"}},
		apiType{GroupVersionResource: schema.GroupVersionResource{Group: "down.example.com", Version: "v1", Resource: "knowns"}, kind: "Known", namespaced: true, versions: []string{"v1"}, local: true},
		apiType{GroupVersionResource: schema.GroupVersionResource{Group: "two.example.com", Version: "v1", Resource: "as"}, kind: "Same", versions: []string{"v1"}, local: true},
		apiType{GroupVersionResource: schema.GroupVersionResource{Group: "two.example.com", Version: "v1", Resource: "bs"}, kind: "Same", versions: []string{"v1"}, local: true},
		apiType{GroupVersionResource: schema.GroupVersionResource{Group: "two.example.com", Version: "v1", Resource: "upper"}, kind: "Case", versions: []string{"v1"}, local: true},
		apiType{GroupVersionResource: schema.GroupVersionResource{Group: "two.example.com", Version: "v1", Resource: "lower"}, kind: "case", versions: []string{"v1"}, local: true},
	)
)

// The back-off of a failed read may begin later.
func TestReadsInBackOffAreKept(t *testing.T) {
	r := newOwnerReader(nil, clocktesting.NewFakeClock(began.Add(keepReads+1)), nil, nil)
	r.reads[location{name: "a"}], r.reads[location{name: "b"}] = liveRead{received: began}, liveRead{sent: began, received: began.Add(time.Minute)}
	r.prune()
	fakeapi.Want(t, "kept reads", len(r.reads), 1)
	r.failed.ReserveN(began, failuresBurst)
	r.reset()
	fakeapi.Want(t, "failures of an earlier term", int(failuresBurst-r.failed.TokensAt(began)), 0)
}

func TestResolve(t *testing.T) {
	none := schema.GroupVersionResource{}
	for _, tt := range []struct {
		name             string
		apiVersion, kind string
		namespace        string
		want             schema.GroupVersionResource
		in               string
		problem          problem
	}{
		{"an owner in the same namespace", "v1", "ConfigMap", "shop", schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "shop", fine},
		{"an owner in no namespace", "v1", "Node", "shop", schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", fine},
		{"both in no namespace, and the kind in lower case", "v1", "node", "", schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", fine},
		{"an owner that would be in some namespace", "v1", "ConfigMap", "", none, "", outOfScope},
		{"a version of one storage that is no longer served", "example.com/v1alpha1", "Widget", "shop", schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}, "shop", fine},
		{"a version of another server", "far.example.com/v1beta1", "Thing", "shop", schema.GroupVersionResource{Group: "far.example.com", Version: "v1beta1", Resource: "things"}, "shop", fine},
		{"one that it does not serve", "far.example.com/v1alpha1", "Thing", "shop", none, "", unservedVersion},
		{"a kind in another group", "extensions/v1beta1", "ConfigMap", "shop", none, "", unknownKind},
		{"a kind that is not served", "v1", "Nothing", "shop", none, "", unknownKind},
		{"a group that cannot be discovered", "down.example.com/v1", "Unknown", "shop", none, "", undiscovered},
		{"what is known of it all the same", "down.example.com/v1", "Known", "shop", schema.GroupVersionResource{Group: "down.example.com", Version: "v1", Resource: "knowns"}, "shop", fine},
		{"a kind of two types", "two.example.com/v1", "Same", "shop", none, "", ambiguousKind},
		{"the same in lower case", "two.example.com/v1", "same", "shop", none, "", ambiguousKind},
		{"two kinds that differ by case", "two.example.com/v1", "case", "shop", schema.GroupVersionResource{Group: "two.example.com", Version: "v1", Resource: "lower"}, "", fine},
		{"two slashes", "example.com/v1/x", "Widget", "shop", none, "", unparsableVersion},
		{"no version", "example.com/", "Widget", "shop", none, "", unparsableVersion},
	} {
		got, p := discovered.resolve(reference{apiVersion: tt.apiVersion, kind: tt.kind, name: "o"}, tt.namespace)
		if p != tt.problem || got.GroupVersionResource != tt.want || got.namespace != tt.in || p == fine && got.name != "o" {
			t.Errorf("%s: owner is %+v, problem %q, want %v in %q, problem %q", tt.name, got, p, tt.want, tt.in, tt.problem)
		}
	}
	for _, name := range []string{".", "..", "../secrets/s", "../../other/configmaps/o", "o/log", "a%2fb"} {
		for _, tt := range []struct {
			apiVersion, kind, namespace string
			want                        problem
		}{{"v1", "ConfigMap", "shop", impossibleName}, {"v1", "Node", "", impossibleName}, {"v1", "ConfigMap", "", outOfScope}, {"far.example.com/v1", "Thing", "shop", unusableName}} {
			if at, p := discovered.resolve(reference{apiVersion: tt.apiVersion, kind: tt.kind, name: name}, tt.namespace); p != tt.want {
				t.Errorf("a %s that is called %q is looked for at %v, problem %q, want %q", tt.kind, name, at, p, tt.want)
			}
		}
	}
	_, p := kindIndex{}.resolve(reference{apiVersion: "v1", kind: "Node"}, "")
	fakeapi.Want(t, "problem before any discovery", p, undiscovered)
}
