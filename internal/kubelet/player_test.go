package kubelet

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
)

// newPlayer returns a player whose requests get the responses of a function.
func newPlayer(t *testing.T, answer fakeapi.RoundTripper) *Player {
	t.Helper()
	client := fakeapi.Must(kubernetes.NewForConfig(&rest.Config{Host: "https://server", Transport: answer}))
	return fakeapi.Must(NewPlayer(client, corev1.NamespaceAll, func(*corev1.Pod) Course { return Course{} }))
}

// client-go's informers sleep regardless of the context when a streaming list is rejected with 429.
func TestStoppingWaitsASecondForAnInformerThatSleeps(t *testing.T) {
	overloaded := func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Request: req}, nil
	}
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			player := newPlayer(t, overloaded)
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
			time.Sleep(2 * time.Minute)
		})
	}
}

func TestACourseBeginsWhenThePodIsScheduled(t *testing.T) {
	slow := Course{Steps: []Step{{State: Ready, After: time.Second}}, GoneAfter: time.Minute}
	player := &Player{course: func(*corev1.Pod) Course { return slow }, known: map[types.UID]progress{}}
	begun := time.Unix(1e9, 0)
	free := &corev1.Pod{}
	gated := &corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/queue"}}}}
	for _, tt := range []struct {
		pod  *corev1.Pod
		at   time.Duration
		do   act
		wait time.Duration
	}{
		{gated, 0, nothing, 0},
		{gated, time.Hour, nothing, 0},
		{free, 2 * time.Hour, nothing, time.Second},
		{free, 2*time.Hour + time.Second, post, 0},
	} {
		now := begun.Add(tt.at)
		if do, wait := player.advancePod(tt.pod, now).nextAct(tt.pod, now); do != tt.do || wait != tt.wait {
			t.Errorf("%d gates, after %v: %v, %v; want %v, %v", len(tt.pod.Spec.SchedulingGates), tt.at, do, wait, tt.do, tt.wait)
		}
	}
}
