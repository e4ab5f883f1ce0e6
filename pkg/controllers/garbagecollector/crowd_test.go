package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The author of an object chooses the owner names in its references. A name may be another path of the API.
func TestNameOfAnotherPathIsNotRead(t *testing.T) {
	s := newShell(t)
	owner := ref("v1", "ConfigMap", "../services/http:evil:80/proxy/x", "any")
	key := s.dependent(t, owner)
	s.look(t, key)
	if got := s.sentRequests("get configmaps"); len(got) != 0 || len(s.sent()) != 1 {
		t.Errorf("requests are %q, and %d deletes were sent, want no request for the owner", got, len(s.sent()))
	}
	at := s.types.state(configMaps.GroupResource).apiType
	if _, err := s.readAgain(t.Context(), at, object{name: "../secrets/s"}); err == nil || len(s.sentRequests("get configmaps")) > 0 {
		t.Errorf("an object was read that is called like a path: %v", err)
	}
}

// A read of the same sync stays valid until the last owner was read.
func TestSlowReadsOfManyOwnersTakeOneSync(t *testing.T) {
	for _, tt := range []struct {
		name    string
		owners  int
		takes   time.Duration // of a read
		leaving bool
	}{
		{"two owners that are gone, of slow APIs", 2, 3 * time.Second, false},
		{"two owners that wait", 2, 300 * time.Millisecond, true},
		{"thousands of owners", 3000, time.Millisecond, false},
		{"a hundred owners at one read per second", 100, time.Second, false},
		{"a hundred waiting owners at one read per second", 100, time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShell(t)
			var refs []metav1.OwnerReference
			for n := range tt.owners {
				refs = append(refs, ref("v1", "ConfigMap", fmt.Sprint("o", n), uid(10+n)))
			}
			s.get = func(name string, _ int) (*thing, error) {
				s.clock.Step(tt.takes)
				var n int
				if _, err := fmt.Sscanf(name, "o%d", &n); err != nil || !tt.leaving {
					return nil, notFound(name)
				}
				return newThing("a", name, uid(10+n)).finalizedBy("foregroundDeletion").deleted(), nil
			}
			key := s.dependent(t, refs...)
			got := s.look(t, key)
			if len(s.sent()) != 1 || len(s.sentRequests("get")) > 3*tt.owners {
				t.Errorf("%d deletes were sent after %d questions, and it is looked at again in %v", len(s.sent()), len(s.sentRequests("get")), got.RequeueAfter)
			}
		})
	}
}

func newTestWriter() *writer {
	return newWriter(nil, clock.RealClock{}, false, newMetrics(prometheus.NewRegistry()))
}

// A sync that waits for long would count as stuck.
func TestWriteWithoutSlotIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWriter()
		ctx, cancel := context.WithCancel(t.Context())
		for n := range allWrites {
			o := object{namespace: "a", name: fmt.Sprint("d", n), uid: uid(n)}
			go func() {
				_, _ = w.send(ctx, apiType{}, o, o.uid, requestDelete, nil, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			}()
		}
		time.Sleep(5 * time.Second)
		begun := time.Now()
		o := object{namespace: "a", name: "late", uid: uid(5000)}
		_, err := w.send(t.Context(), apiType{}, o, o.uid, requestDelete, nil, func(context.Context) error { return nil })
		if took := time.Since(begun); !errors.Is(err, errBusy) || !errors.Is(err, context.Canceled) || took != slotTimeout {
			t.Errorf("after %v: %v, want to be told after %v that others are in line", took, err, slotTimeout)
		}
		cancel()
		synctest.Wait()
	})
}

// Some policies reject requests with a conflict.
func TestConflictWithoutChangeIsRejection(t *testing.T) {
	s := newShell(t)
	owner := ref("v1", "ConfigMap", "o", uid(1))
	key := s.dependent(t, owner)
	s.get = func(name string, _ int) (*thing, error) {
		if name == "d" {
			return newThing("a", "d", uid(2)).at("5").owned(owner), nil
		}
		return nil, notFound(name)
	}
	s.remove = func(int) error { return conflictOn("d") }
	if got := s.look(t, key); got.RequeueAfter != minRejectedBackoff || len(s.sent()) != 1 {
		t.Errorf("%d deletes were sent, and it is looked at again in %v", len(s.sent()), got.RequeueAfter)
	}
	if got := s.counts(); got[string(causeRejected)] != 1 {
		t.Errorf("counted are %v", got)
	}

	s = newShell(t)
	finalized := s.owner(t, "foregroundDeletion")
	s.patch = func(name string, _ int) error { return conflictOn(name) }
	if got := s.finish(t, finalized); got.RequeueAfter < minRecheck || len(s.sentRequests("patch")) > 2 {
		t.Errorf("%d patches were sent, and it is looked at again in %v", len(s.sentRequests("patch")), got.RequeueAfter)
	}

	s = newShell(t)
	orphaned := s.orphans(t)
	s.get = func(name string, _ int) (*thing, error) {
		if name == "o" {
			return newThing("a", "o", uid(1)).at("3").finalizedBy("orphan").deleted(), nil
		}
		n := 2 + int(name[1]-'0')
		return newThing("a", name, uid(n)).at("7").owned(ref("v1", "ConfigMap", "o", uid(1))), nil
	}
	s.patch = func(name string, _ int) error { return conflictOn(name) }
	if got := s.finish(t, orphaned); got.RequeueAfter < reportAfter/2 || len(s.sentRequests("patch")) > 6 {
		t.Errorf("%d patches were sent, and it is looked at again in %v", len(s.sentRequests("patch")), got.RequeueAfter)
	}
}

// Objects of aggregated API servers may have names that are no path segment. A request would go to another path, so no
// request is sent.
func TestNameOfAnotherPathIsRejected(t *testing.T) {
	s := newShell(t)
	f := s.serve(t, objectType{widgetsType.GroupResource, "Widget", true}, "v1")
	check(t, f.Add(newThing("a", "x/y", uid(2)).at("1").owned(ref("v1", "ConfigMap", "o", uid(1)))))
	s.clock.Step(time.Minute)
	var lines []string
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	for range 5 {
		got, err := s.reconcileObject(ctx, keyOf(uid(2)))
		if err != nil || got.RequeueAfter < minRejectedBackoff {
			t.Fatalf("looked at again after %v, %v", got.RequeueAfter, err)
		}
		s.clock.Step(got.RequeueAfter)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "Request was rejected") || len(s.sent()) > 0 {
		t.Errorf("logged was %q, and %d deletes were sent", lines, len(s.sent()))
	}
}
