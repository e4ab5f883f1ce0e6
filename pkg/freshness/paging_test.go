package freshness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// pager serves pods in pages to clients that page, and cannot stream lists.
type pager struct {
	pods int

	lock    sync.Mutex
	expires bool // the second page of the next list
	lists   []string
}

func (p *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("watch") != "" {
		if query.Get("sendInitialEvents") != "" {
			http.Error(w, "no", http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.lists = append(p.lists, "limit="+query.Get("limit")+" version="+query.Get("resourceVersion")+" continue="+query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, _ := strconv.Atoi(query.Get("continue"))
	w.Header().Set("Content-Type", "application/json")
	if from > 0 && p.expires {
		p.expires = false
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
		return
	}
	to := p.pods
	if limit > 0 {
		to = min(from+limit, p.pods)
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	if to < p.pods {
		list.Continue = strconv.Itoa(to)
	}
	for i := range to - from {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: strconv.Itoa(from + i), ResourceVersion: "1"}})
	}
	_ = runtime.Encoder(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)).Encode(&list, w)
}

// A reflector without streaming lists requests all objects in a single response in several cases.
func TestPlainListsComeInPages(t *testing.T) {
	for _, tt := range []struct {
		name    string
		expires bool
		version string // the reflector has reached
		want    []string
	}{
		{"the first", false, "", []string{
			"limit=2000 version= continue=", "limit=2000 version= continue=2000"}},
		{"one from a version on", false, "5", []string{
			"limit=2000 version= continue=", "limit=2000 version= continue=2000"}},
		{"one that expires is listed again in pages", true, "", []string{
			"limit=2000 version= continue=", "limit=2000 version= continue=2000", "limit=2000 version= continue=", "limit=2000 version= continue=2000"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &pager{pods: 2500, expires: tt.expires}
			server := httptest.NewServer(p)
			defer server.Close()
			defer server.CloseClientConnections()
			cfg, http, err := newTransport().Client(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, false)
			if err != nil {
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfigAndClient(cfg, http)
			if err != nil {
				t.Fatal(err)
			}
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			reflector := cache.NewReflector(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					if o.ResourceVersion != "" && o.ResourceVersion != "0" || tt.version == "" {
						return client.CoreV1().Pods("").List(ctx, o)
					}
					o.ResourceVersion, o.Limit = tt.version, 0
					return client.CoreV1().Pods("").List(ctx, o)
				},
				WatchFuncWithContext: client.CoreV1().Pods("").Watch,
			}, client), &corev1.Pod{}, store, 0)
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() { reflector.RunWithContext(ctx) })
			defer done.Wait()
			defer cancel()
			for end := time.Now().Add(30 * time.Second); len(store.List()) != 2500; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d pods in the store, want 2500", len(store.List()))
				}
			}
			p.lock.Lock()
			defer p.lock.Unlock()
			if !slices.Equal(p.lists, tt.want) {
				t.Errorf("lists %q, want %q", p.lists, tt.want)
			}
		})
	}
}

func TestExpiredPageIsNoExpiredList(t *testing.T) {
	rt := newPool(t, newTransport(), roundTripper(func(*http.Request) (*http.Response, error) { return respond(http.StatusGone, ""), nil }))
	for query, want := range map[string]error{"?continue=x": errExpired, "?resourceVersion=7": nil, "?watch=true&resourceVersion=7": nil} {
		req := httptest.NewRequest(http.MethodGet, "https://server/api/v1/pods"+query, nil)
		if _, err := rt.RoundTrip(req); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", query, err, want)
		}
	}
}
