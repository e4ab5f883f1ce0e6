package kcmtest

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"minikcm/internal/fakeapi"
	"minikcm/internal/kubelet"
)

func TestAnnotationSteersAPod(t *testing.T) {
	steps := func(s ...kubelet.Step) kubelet.Course { return kubelet.Course{Steps: s} }
	invalid := func(message string) kubelet.Course {
		return steps(kubelet.Step{State: kubelet.Pending, Reason: "InvalidAnnotation", Message: "annotation kcmtest/pod: " + message})
	}
	for _, tt := range []struct {
		value string
		want  kubelet.Course
	}{
		{"ready", steps(kubelet.Step{State: kubelet.Ready})},
		{"succeeded after 1s", steps(kubelet.Step{State: kubelet.Succeeded, After: time.Second})},
		{" ready  after 500ms ,failed after 2s", steps(kubelet.Step{State: kubelet.Ready, After: 500 * time.Millisecond}, kubelet.Step{State: kubelet.Failed, After: 2 * time.Second})},
		{"gone after 5s", kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Ready}}, GoneAfter: 5 * time.Second}},
		{"running, never gone", kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Running}}, GoneAfter: -1}},
		{"rady", invalid(`"rady" is none of failed, pending, ready, running, succeeded, gone after <duration>, never gone`)},
		{"gone", invalid(`"gone" is none of failed, pending, ready, running, succeeded, gone after <duration>, never gone`)},
		{"ready after -1s", invalid(`"-1s" is no duration, such as 500ms or 2s`)},
		{"", invalid(`"" is none of failed, pending, ready, running, succeeded, gone after <duration>, never gone`)},
	} {
		got := courseOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{PodAnnotation: tt.value}}})
		fakeapi.WantEqual(t, tt.value+": course", got, tt.want)
	}
	fakeapi.WantEqual(t, "course without the annotation", courseOf(&corev1.Pod{}), steps(kubelet.Step{State: kubelet.Ready}))
}

// A watch that follows a streamed list may be silent for any time.
func TestAQuietMinuteIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := 0
		api := fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
			streams++
			body, events := io.Pipe()
			go func() {
				_, _ = io.WriteString(events, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
				<-req.Context().Done()
				_ = events.Close()
			}()
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: req}, nil
		})
		player := fakeapi.Must(newKubelets(&rest.Config{Host: "http://api", Transport: api}))
		var log []string
		logger := funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{})
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		up, done := false, make(chan struct{})
		go func() {
			defer close(done)
			player.Run(ctx, func() { up = true })
		}()
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if !up || streams != 1 || len(log) > 0 {
			t.Errorf("filled: %v; %d streams, want 1; logged %q", up, streams, log)
		}
		stop()
		<-done
	})
}
