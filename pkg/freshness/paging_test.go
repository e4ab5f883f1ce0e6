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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
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
		resp := respond(code, string(fakeapi.Must(json.Marshal(body))))
		resp.Header = http.Header{"Content-Type": {"application/json"}}
		return resp, nil
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
		want    []string
	}{
		{"first list", false, pages},
		{"expired list is repeated in pages", true, slices.Concat(pages, pages)},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			p := &pager{pods: 2500, expires: tt.expires}
			cfg, held, err := newTransport().Client(&rest.Config{Host: "http://host", ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: p}, false)
			client := fakeapi.Must(kubernetes.NewForConfigAndClient(cfg, fakeapi.Must(held, err)))
			informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() { informer.RunWithContext(ctx) })
			sleep(settleTime)
			if n := len(informer.GetStore().List()); n != p.pods || !slices.Equal(p.lists, tt.want) {
				t.Errorf("%d pods in the store, want %d; lists %q, want %q", n, p.pods, p.lists, tt.want)
			}
			cancel()
			done.Wait()
		})
	}
}

func TestExpiredPageIsNoExpiredList(t *testing.T) {
	rt := newPool(newTransport(), respondAlways(http.StatusGone, ""))
	for query, want := range map[string]error{"?continue=x": errExpired, "?resourceVersion=7": nil, "?watch=true&resourceVersion=7": nil} {
		if _, err := rt.RoundTrip(request(t.Context(), http.MethodGet, server+query)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", query, err, want)
		}
	}
}
