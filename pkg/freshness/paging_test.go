package freshness

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"

	"minikcm/internal/fakeapi"
)

// A reflector without streaming lists requests all objects in a single response in several cases.
func TestPlainListsComeInPages(t *testing.T) {
	const group, widgets, objects = "example.com/v1", "widgets", 2500
	pages := []string{"limit=2000 version= continue=", "limit=2000 version= continue=2000"}
	for _, tt := range []struct {
		name    string
		stalls  bool // every streaming list
		expires bool // the second page of the first list
		want    []string
	}{
		{"streaming lists are not supported", false, false, pages},
		{"streaming lists stall", true, false, pages},
		{"expired list is repeated in pages", false, true, slices.Concat(pages, pages)},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			api := fakeapi.NewLocalTypes()
			var lists []string
			api.AddType(group, metav1.APIResource{Name: widgets, Kind: "Widget", Namespaced: true})
			if !tt.stalls {
				api.NoStream(group, widgets)
			}
			for i := range objects {
				api.Put(group, widgets, metav1.ObjectMeta{Namespace: "ns", Name: strconv.Itoa(i)})
			}
			cfg := api.Config()
			server := cfg.Transport
			cfg.Transport = fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
				query := req.URL.Query()
				if tt.stalls && query.Has("sendInitialEvents") {
					return streamParts(0)(req)
				}
				if !query.Has("watch") {
					lists = append(lists, "limit="+query.Get("limit")+" version="+query.Get("resourceVersion")+" continue="+query.Get("continue"))
				}
				if tt.expires && len(lists) == 2 && query.Has("continue") {
					return respond(http.StatusGone, ""), nil
				}
				return server.RoundTrip(req)
			})
			cfg, held, err := newTransport().Client(cfg, false)
			client := fakeapi.Must(metadata.NewForConfigAndClient(cfg, fakeapi.Must(held, err)))
			resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: widgets}
			informer := metadatainformer.NewSharedInformerFactory(client, 0).ForResource(resource).Informer()
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() { informer.RunWithContext(ctx) })
			sleep(listIdleTimeout + settleTime)
			fakeapi.Want(t, "objects in the store", len(informer.GetStore().List()), objects)
			fakeapi.WantEqual(t, "lists", lists, tt.want)
			cancel()
			done.Wait()
		})
	}
}

func TestExpiredPageIsNoExpiredList(t *testing.T) {
	rt := newPool(newTransport(), respondAlways(http.StatusGone, ""))
	for query, want := range map[string]error{"?continue=x": errExpired, "?resourceVersion=7": nil, "?watch=true&resourceVersion=7": nil} {
		_, err := rt.RoundTrip(request(t.Context(), http.MethodGet, server+query))
		fakeapi.WantError(t, "error of "+query, err, want)
	}
}
