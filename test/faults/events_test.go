package faults

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// In whatever pieces the bytes come, the last complete event is known, and how much of the next bytes is of the one that was begun.
func TestEventsInPieces(t *testing.T) {
	request := httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true", nil)
	for _, protobuf := range []bool{false, true} {
		t.Run(fmt.Sprintf("protobuf=%v", protobuf), func(t *testing.T) {
			e := events{protobuf: protobuf}
			var all []byte
			var ends []int
			for version := uint64(7); version < 10; version++ {
				event, err := e.bookmark(request, version)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, event...)
				ends = append(ends, len(all))
			}
			for piece := 1; piece <= len(all); piece++ {
				e := events{protobuf: protobuf}
				for at := 0; at < len(all); at += piece {
					left := 0
					if !slices.Contains(append([]int{0}, ends...), at) {
						end := ends[slices.IndexFunc(ends, func(end int) bool { return end > at })]
						left = end - at
					}
					if got := e.left(all[at:]); got != left {
						t.Fatalf("pieces of %d: %d bytes of an event are left at %d, want %d", piece, got, at, left)
					}
					e.pass(all[at:min(at+piece, len(all))])
				}
				if got := e.version(); got != 9 {
					t.Fatalf("pieces of %d: the last version is %d, want 9", piece, got)
				}
			}
		})
	}
}

// podServer streams pods, in the encoding that is asked for.
func podServer(t *testing.T, events <-chan watch.Event) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		media := "application/json"
		if accept := r.Header.Get("Accept"); len(accept) > 0 && accept != media {
			media = runtime.ContentTypeProtobuf
		}
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
		w.Header().Set("Content-Type", media+";stream=watch")
		w.(http.Flusher).Flush()
		object := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
		for {
			select {
			case event := <-events:
				raw, err := runtime.Encode(object, event.Object)
				if err != nil {
					t.Error(err)
					return
				}
				_ = info.StreamSerializer.Encode(&metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: raw}},
					info.StreamSerializer.Framer.NewFrameWriter(w))
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func pod(version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", ResourceVersion: version}, Spec: corev1.PodSpec{NodeName: "node"}}
}

// client-go reads what a stuck watch says.
func TestStuckWatchGoesOnWithBookmarks(t *testing.T) {
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(media, func(t *testing.T) {
			events := make(chan watch.Event, 10)
			server := podServer(t, events)
			p := New(t, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
			cfg := p.Config()
			cfg.ContentType = media
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			open := func(since string) watch.Interface {
				t.Helper()
				w, err := client.CoreV1().Pods("").Watch(context.Background(), metav1.ListOptions{ResourceVersion: since})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Stop)
				return w
			}
			expect := func(w watch.Interface, kind watch.EventType, version string) {
				t.Helper()
				event := receive(t, "an event", w.ResultChan())
				if got, ok := event.Object.(*corev1.Pod); event.Type != kind || !ok || got.ResourceVersion != version {
					t.Fatalf("event %s of %v, want %s of a pod of version %s", event.Type, event.Object, kind, version)
				}
			}
			old := open("5")
			events <- watch.Event{Type: watch.Added, Object: pod("7")}
			expect(old, watch.Added, "7")
			stuck := p.StickWatches(Watches("pods"), 50*time.Millisecond)
			events <- watch.Event{Type: watch.Modified, Object: pod("8")}
			expect(old, watch.Bookmark, "7")
			expect(old, watch.Bookmark, "7")
			younger, youngest := open("6"), open("7")
			expect(younger, watch.Bookmark, "7")
			select {
			case event := <-youngest.ResultChan():
				t.Errorf("event %s on a stream that began at the last version, want none", event.Type)
			case <-time.After(200 * time.Millisecond):
			}
			younger.Stop()
			youngest.Stop()
			stuck.Thaw()
			for { // bookmarks may be on their way
				event := receive(t, "what was held back", old.ResultChan())
				if event.Type == watch.Modified {
					break
				}
			}
		})
	}
}

// A watch of metadata only, as of those who compare, is stuck with the same words.
func TestStuckWatchOfMetadata(t *testing.T) {
	server := podServer(t, make(chan watch.Event))
	p := New(t, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	client, err := metadata.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	open := func(since string) watch.Interface {
		t.Helper()
		w, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Watch(context.Background(), metav1.ListOptions{ResourceVersion: since})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	open("9")
	eventually(t, "one open watch", func() bool { return p.OpenWatches(Watches("pods")) == 1 })
	p.StickWatches(Watches(), 50*time.Millisecond)
	event := receive(t, "a bookmark", open("8").ResultChan())
	if got, ok := event.Object.(*metav1.PartialObjectMetadata); event.Type != watch.Bookmark || !ok || got.ResourceVersion != "9" {
		t.Errorf("event %s of %v, want a bookmark of version 9", event.Type, event.Object)
	}
}
