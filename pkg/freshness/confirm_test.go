package freshness

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

func TestConfirm(t *testing.T) {
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	refused := errors.New("the network is away")
	listed := []ObjectVersion{{Name: "a", UID: "1", ResourceVersion: "10"}, {Name: "b", UID: "2", ResourceVersion: "20"}}
	for _, tt := range []struct {
		name    string
		version string        // of the store
		later   time.Duration // time until the store reaches the version of the list; zero means never
		objects []ObjectVersion
		err     error // of lists
		want    error
		lists   int
	}{
		{"it has reached the version of a list", "30", 0, nil, nil, nil, 1},
		{"it has gone on since", "31", 0, nil, nil, nil, 1},
		{"it reaches the version in a moment", "29", 100 * time.Millisecond, nil, nil, nil, 1},
		{"its type is quiet", "20", 0, listed, nil, nil, 2},
		{"it was never filled", "", 0, nil, nil, ErrBehind, 2},
		{"it lacks an object", "20", 0, listed[:1], nil, ErrBehind, 2},
		{"it has an object that was deleted", "20", 0, append([]ObjectVersion{{Name: "c", UID: "3", ResourceVersion: "15"}}, listed...), nil, ErrBehind, 2},
		{"it shows an older state of an object", "19", 0, []ObjectVersion{listed[0], {Name: "b", UID: "2", ResourceVersion: "19"}}, nil, ErrBehind, 2},
		{"it has an object that is newer than the list", "20", 0, append([]ObjectVersion{{Name: "d", UID: "4", ResourceVersion: "35"}}, listed...), nil, nil, 2},
		{"nobody answers", "30", 0, listed, refused, refused, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists, start := 0, time.Now()
				client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
				client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					if lists++; tt.err != nil {
						return true, nil, tt.err
					}
					list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "30"}}
					for _, o := range listed {
						list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
							ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion},
						}})
					}
					return true, list, nil
				})
				w := Watched{Resource: nodes, Objects: func() []ObjectVersion { return tt.objects }, Version: func() string {
					if tt.later > 0 && time.Since(start) >= tt.later {
						return "30"
					}
					return tt.version
				}}
				if err := w.Confirm(t.Context(), client, clock.RealClock{}); !errors.Is(err, tt.want) {
					t.Errorf("Confirm = %v, want %v", err, tt.want)
				}
				if lists != tt.lists {
					t.Errorf("%d lists, want %d", lists, tt.lists)
				}
			})
		})
	}
}
