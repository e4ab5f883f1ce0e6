package kubelet

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A player of a manager that never starts is not run.
func TestAPlayerThatIsNotRunLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := NewPlayer(kubernetes.New(nil), corev1.NamespaceAll, func(*corev1.Pod) Course { return Course{} }); err != nil {
			t.Fatal(err)
		}
	})
}

// client-go's informers sleep without looking at their context when a streaming list is refused with 429, mostly for many seconds.
func TestStoppingWaitsASecondForAnInformerThatSleeps(t *testing.T) {
	overloaded := answering(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Request: req}, nil
	})
	for range 10 { // how long it sleeps is random
		synctest.Test(t, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://server", Transport: overloaded})
			if err != nil {
				t.Fatal(err)
			}
			player, err := NewPlayer(client, corev1.NamespaceAll, func(*corev1.Pod) Course { return Course{} })
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				player.Run(ctx, func() {})
			}()
			time.Sleep(time.Minute)
			begun := time.Now()
			stop()
			<-ended
			if took := time.Since(begun); took > informerPatience {
				t.Errorf("stopping took %v, want %v at most", took, informerPatience)
			}
			time.Sleep(2 * time.Minute) // it wakes up, and ends
		})
	}
}

// answering is a transport.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
