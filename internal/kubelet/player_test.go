package kubelet

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/internal/fakeapi"
)

// newPlayer returns a player whose requests get the responses of a function.
func newPlayer(t *testing.T, answer fakeapi.RoundTripper) *Player {
	t.Helper()
	client := fakeapi.Must(kubernetes.NewForConfig(&rest.Config{Host: "https://server", Transport: answer}))
	return fakeapi.Must(NewPlayer(client, corev1.NamespaceAll, func(*corev1.Pod) Course { return Course{} }))
}

// A player of a manager that never starts is not run.
func TestAPlayerThatIsNotRunLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { newPlayer(t, nil) })
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

func TestAStatusThatIsRefusedIsLogged(t *testing.T) {
	client := fakeapi.NewClientset(t)
	client.Break(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), "patch pods/status")
	ready := func(*corev1.Pod) Course { return Course{Steps: []Step{{State: Ready}}} }
	player := fakeapi.Must(NewPlayer(client, corev1.NamespaceAll, ready))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	fakeapi.NoError(t, player.informer.GetIndexer().Add(pod))
	var log []string
	logger := funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{Verbosity: 2})
	if err := player.syncPod(klog.NewContext(t.Context(), logger), cache.MetaObjectToName(pod)); err != nil || len(log) != 1 {
		t.Errorf("play = %v, want nil; logged %q, want one line", err, log)
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
