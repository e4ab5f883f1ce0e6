package garbagecollector

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// BenchmarkMemory measures the memory of an object in the graph, including the name.
func BenchmarkMemory(b *testing.B) {
	const many = 100_000
	for _, bb := range []struct {
		name  string
		owned int // of ten objects
	}{{"owned", 10}, {"mixed", 7}, {"free", 0}} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				g := newGraph(clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), func(queueKeys) {})
				before := heap()
				fill(b, g, many, bb.owned)
				after := heap()
				b.ReportMetric(float64(after-before)/many, "B/object")
				runtime.KeepAlive(g)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fill adds objects. Some objects have one of a hundred owners.
func fill(b *testing.B, g *graph, many, owned int) {
	f := g.feed(configMaps)
	for n := range many {
		obj := newThing(fmt.Sprint("namespace-", n%200), fmt.Sprintf("object-of-a-common-length-%06d", n), distinct(n))
		if n%10 < owned {
			obj.OwnerReferences = []metav1.OwnerReference{blockingRef("v1", "ConfigMap", fmt.Sprintf("object-of-a-common-length-%06d", n%100), distinct(n%100))}
		}
		if err := f.Add(obj); err != nil {
			b.Fatal(err)
		}
	}
}

// distinct returns a UUID with random digits.
func distinct(n int) types.UID {
	h := uint64(n+1) * 0x9e3779b97f4a7c15
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", h>>32, h>>16&0xffff, h&0xfff, h>>20&0xfff, h&0xffffffffffff))
}
