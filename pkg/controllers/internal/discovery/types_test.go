package discovery

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"minikcm/internal/fakeapi"
	"minikcm/internal/faket"
)

func TestMain(m *testing.M) { faket.Main(m) }

var epoch = time.Unix(1e9, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

// deletable selects the types of the namespace controller.
func deletable(api metav1.APIResource) bool {
	return api.Namespaced && slices.Contains(api.Verbs, "delete")
}

func TestSelect(t *testing.T) {
	all := []string{"delete", "deletecollection", "list", "watch"}
	clusterScoped := metav1.APIResource{Name: "nodes", Verbs: all}
	for _, tt := range []struct {
		name   string
		groups []*metav1.APIGroup
		lists  []*metav1.APIResourceList
		want   []string // group/versions/resource and verbs
	}{
		{"only what lives in namespaces and can be deleted",
			[]*metav1.APIGroup{fakeapi.APIGroup("", "v1")},
			[]*metav1.APIResourceList{fakeapi.CoreList(fakeapi.APIType("pods", all...), fakeapi.APIType("pods/eviction", all...), fakeapi.APIType("bindings", "create"), clusterScoped)},
			[]string{"/v1/pods list deletecollection watch"}},
		{"the first version that can delete it",
			[]*metav1.APIGroup{fakeapi.APIGroup("x", "v3", "v2", "v1")},
			[]*metav1.APIResourceList{fakeapi.CoreList(), fakeapi.APIList("x/v1", fakeapi.APIType("a", all...)), fakeapi.APIList("x/v2", fakeapi.APIType("a", all...)), fakeapi.APIList("x/v3", fakeapi.APIType("a", "list"))},
			[]string{"x/v2,v1/a list deletecollection watch"}},
		{"events are stored once",
			[]*metav1.APIGroup{fakeapi.APIGroup("", "v1"), fakeapi.APIGroup("events.k8s.io", "v1")},
			[]*metav1.APIResourceList{fakeapi.CoreList(fakeapi.APIType("events", "delete")), fakeapi.APIList("events.k8s.io/v1", fakeapi.APIType("events", "delete"))},
			[]string{"/v1/events"}},
		{"unless the core group cannot be seen",
			[]*metav1.APIGroup{fakeapi.APIGroup("events.k8s.io", "v1")},
			[]*metav1.APIResourceList{fakeapi.APIList("events.k8s.io/v1", fakeapi.APIType("events", "delete"))},
			[]string{"events.k8s.io/v1/events"}},
		{"one bad name does not spoil the rest",
			[]*metav1.APIGroup{fakeapi.APIGroup("x", "v1")},
			[]*metav1.APIResourceList{fakeapi.CoreList(), fakeapi.APIList("x/y/z", fakeapi.APIType("a", "delete")), fakeapi.APIList("x/v1", fakeapi.APIType("b", "delete", "list"))},
			[]string{"x/v1/b list"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := SelectTypes(tt.groups, tt.lists, nil, epoch, deletable)
			var got []string
			for _, r := range a.Types {
				versions := a.Versions(r.GroupResource())
				text := r.Group + "/" + strings.Join(versions, ",") + "/" + r.Resource
				if r.Kind != strings.ToUpper(r.Resource) || r.Version != versions[0] || !a.Has(r.GroupResource()) || a.Has(schema.GroupResource{Resource: "namespaces"}) {
					t.Errorf("%+v with versions %v", r, versions)
				}
				for _, verb := range []struct {
					name string
					has  bool
				}{{"list", r.List}, {"deletecollection", r.DeleteCollection}, {"watch", r.Watch}} {
					if verb.has {
						text += " " + verb.name
					}
				}
				got = append(got, text)
			}
			fakeapi.WantEqual(t, "types", got, tt.want)
			bad, blind := tt.name == "one bad name does not spoil the rest", tt.name == "unless the core group cannot be seen"
			if a.Complete() == (bad || blind) || (a.ParseErr != nil) != bad || (a.Err != nil) != blind {
				t.Errorf("complete %v with error %v and parse error %v", a.Complete(), a.Err, a.ParseErr)
			}
		})
	}
}

// The client takes a 404 for an API without core types.
func TestDiscoveryWithoutTheCoreAPIIsIncomplete(t *testing.T) {
	broken := errors.New("broken")
	failed := func(versions ...schema.GroupVersion) error {
		err := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{}}
		for _, gv := range versions {
			err.Groups[gv] = broken
		}
		return err
	}
	x, core := schema.GroupVersion{Group: "x", Version: "v1"}, schema.GroupVersion{Version: "v1"}
	z, a := schema.GroupVersion{Group: "z.example.com", Version: "v1"}, schema.GroupVersion{Group: "a.example.com", Version: "v1beta1"}
	for _, tt := range []struct {
		name  string
		lists []*metav1.APIResourceList
		err   error
		want  []string
	}{
		{"it is there, and two other APIs fail", []*metav1.APIResourceList{fakeapi.CoreList()}, failed(z, a), []string{"v1.z.example.com", "v1beta1.a.example.com"}},
		{"it is not, and another API fails", nil, failed(x), []string{"v1.", "v1.x"}},
		{"it fails", nil, failed(core, x), []string{"v1.", "v1.x"}},
		{"nothing fails: anything may be missing", nil, nil, nil},
		{"no response", nil, broken, nil},
	} {
		a := SelectTypes(nil, tt.lists, tt.err, epoch, deletable)
		var got []string
		for _, f := range a.Failing {
			got = append(got, f.APIService())
		}
		if !slices.Equal(got, tt.want) || a.Err == nil || a.Complete() {
			t.Errorf("%s: failing are %v, want %v; error %v", tt.name, got, tt.want, a.Err)
		}
	}
}
