package replicaset

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

func TestAHorizonIsPassedByCachesThatShowAllBeforeTheTerm(t *testing.T) {
	for _, tt := range []struct {
		name  string
		known *versions
		at    versions
		want  bool
	}{
		{"not known yet", nil, versions{"100", "100"}, false},
		{"both as far", &versions{"100", "90"}, versions{"100", "90"}, true},
		{"both further", &versions{"100", "90"}, versions{"1000", "91"}, true},
		{"pods behind", &versions{"100", "90"}, versions{"99", "95"}, false},
		{"ReplicaSets behind", &versions{"100", "90"}, versions{"120", "89"}, false},
		{"a cache without a version", &versions{"100", "90"}, versions{"", "90"}, false},
		{"versions that are no numbers", &versions{"a", "b"}, versions{"a", "b"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h horizon
			h.versions.Store(tt.known)
			if got := h.passedBy(tt.at); got != tt.want {
				t.Errorf("passed by %+v: %v, want %v", tt.at, got, tt.want)
			}
		})
	}
}

func TestAFirstWriteIsReadLiveOnlyUntilTheCachesHavePassedTheHorizon(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   versions
		want []string
	}{
		{"behind it", versions{"99", "100"}, []string{"get replicasets", "list pods", "create pods", "update replicasets/status"}},
		{"past it", versions{"100", "100"}, []string{"create pods", "update replicasets/status"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1))
			b.cfg.VerifyFirstWrite = true
			b.horizon.versions.Store(&versions{"100", "100"})
			b.at = tt.at
			if _, err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.wants(t, tt.want...)
		})
	}
}

func TestTheHorizonIsAskedForUntilItIsKnown(t *testing.T) {
	b := newBench(t, newSet(1))
	b.on("list pods", func(call int, _ clienttesting.Action) (runtime.Object, error) {
		if call == 1 {
			return nil, errors.New("no answer")
		}
		return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.readHorizon(ctx)
	}()
	clock := b.deps.Clock.(*testingclock.FakeClock)
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	if b.horizon.versions.Load() != nil {
		t.Error("known although pods were not told")
	}
	clock.Step(horizonRetry)
	<-done
	if got := b.horizon.versions.Load(); got == nil || got.pods != "7" {
		t.Errorf("horizon is %+v, want pods at 7", got)
	}
}

func TestAReadIsMadeInPages(t *testing.T) {
	b := newBench(t, newSet(1))
	var asked []string
	b.on("list pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		opts := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, opts.Continue)
		if opts.Limit == 0 {
			t.Error("a list without a limit")
		}
		page := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "50"}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}}}
		if call < 3 {
			page.Continue = "more"
		}
		return page, nil
	})
	pods, version, err := b.deps.Pods.Read(t.Context(), b.client, "default", metav1.ListOptions{Continue: "nonsense"})
	if err != nil || len(pods) != 3 || version != "50" || len(asked) != 3 || asked[0] != "" || asked[1] != "more" {
		t.Errorf("%d pods of version %q, asked with tokens %q, error %v; want 3 pods of version 50 in three pages", len(pods), version, asked, err)
	}
}
