package freshness

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// pager serves pods in pages to clients that page, and cannot stream lists.
type pager struct {
	pods    int
	expires bool     // the second page of the next list
	lists   []string // queries
}

func (p *pager) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	reply := func(code int, body any) (*http.Response, error) {
		text, err := json.Marshal(body)
		resp := respond(code, string(text))
		resp.Header = http.Header{"Content-Type": {"application/json"}}
		return resp, err
	}
	switch {
	case query.Get("sendInitialEvents") != "":
		return reply(http.StatusUnprocessableEntity, metav1.Status{})
	case query.Get("watch") != "":
		return streamParts(0)(req)
	}
	p.lists = append(p.lists, "limit="+query.Get("limit")+" version="+query.Get("resourceVersion")+" continue="+query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, _ := strconv.Atoi(query.Get("continue"))
	if from > 0 && p.expires {
		p.expires = false
		return reply(http.StatusGone, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: "Expired", Code: http.StatusGone})
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	to := p.pods
	if limit > 0 && from+limit < p.pods {
		to = from + limit
		list.Continue = strconv.Itoa(to)
	}
	for i := range to - from {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: strconv.Itoa(from + i), ResourceVersion: "1"}})
	}
	return reply(http.StatusOK, list)
}

// A reflector without streaming lists requests all objects in a single response in several cases.
func TestPlainListsComeInPages(t *testing.T) {
	pages := []string{"limit=2000 version= continue=", "limit=2000 version= continue=2000"}
	for _, tt := range []struct {
		name    string
		expires bool
		version string // of the request for the first list
		want    []string
	}{
		{"first list", false, "", pages},
		{"list from a version", false, "5", pages},
		{"expired list is repeated in pages", true, "", slices.Concat(pages, pages)},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			p := &pager{pods: 2500, expires: tt.expires}
			cfg, held, err := newTransport().Client(&rest.Config{Host: "http://host", ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: p}, false)
			if err != nil {
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfigAndClient(cfg, held)
			if err != nil {
				t.Fatal(err)
			}
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			reflector := cache.NewReflector(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					if o.Continue == "" && tt.version != "" {
						o.ResourceVersion, o.Limit = tt.version, 0
					}
					return client.CoreV1().Pods("").List(ctx, o)
				},
				WatchFuncWithContext: client.CoreV1().Pods("").Watch,
			}, client), &corev1.Pod{}, store, 0)
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() { reflector.RunWithContext(ctx) })
			sleep(settleTime)
			if len(store.List()) != p.pods || !slices.Equal(p.lists, tt.want) {
				t.Errorf("%d pods in the store, want %d; lists %q, want %q", len(store.List()), p.pods, p.lists, tt.want)
			}
			cancel()
			done.Wait()
		})
	}
}

func TestExpiredPageIsNoExpiredList(t *testing.T) {
	rt := newPool(t, newTransport(), roundTripper(func(*http.Request) (*http.Response, error) { return respond(http.StatusGone, ""), nil }))
	for query, want := range map[string]error{"?continue=x": errExpired, "?resourceVersion=7": nil, "?watch=true&resourceVersion=7": nil} {
		if _, err := rt.RoundTrip(request(t.Context(), http.MethodGet, server+query)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", query, err, want)
		}
	}
}
