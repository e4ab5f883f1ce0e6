package node

import (
	"fmt"
	"testing"
	"time"
)

// manyNodesBench is the largest cluster that Kubernetes 1.37 is tested with, three times over.
const manyNodesBench = 15000

// Taking over a cluster: every node is counted, in a single zone, in three, and in a zone each.
func BenchmarkFillZones(b *testing.B) {
	for _, zones := range []int{1, 3, manyNodesBench} {
		b.Run(fmt.Sprint("zones-", zones), func(b *testing.B) {
			now := time.Now()
			for b.Loop() {
				z := testZones(defaults()).zones
				z.freeze(true, now)
				for i := range manyNodesBench {
					z.setNode(fmt.Sprint("node-", i), fmt.Sprint("zone-", i%zones), member{counted: true, ready: true}, now)
				}
				z.freeze(false, now)
			}
		})
	}
}

// A node of many goes and comes back.
func BenchmarkNodeChanges(b *testing.B) {
	for _, zones := range []int{1, manyNodesBench} {
		b.Run(fmt.Sprint("zones-", zones), func(b *testing.B) {
			now := time.Now()
			z := filledZones(zones, now)
			ready := false
			b.ReportAllocs()
			for b.Loop() {
				z.setNode("node-17", fmt.Sprint("zone-", 17%zones), member{counted: true, ready: ready}, now)
				ready = !ready
			}
		})
	}
}

func filledZones(n int, now time.Time) *zones {
	z := testZones(defaults()).zones
	z.freeze(true, now)
	for i := range manyNodesBench {
		z.setNode(fmt.Sprint("node-", i), fmt.Sprint("zone-", i%n), member{counted: true, ready: true}, now)
	}
	z.freeze(false, now)
	return z
}

// Half of a zone is dead and waits: the cost of another wait.
func BenchmarkAskInALongLine(b *testing.B) {
	now := time.Now()
	z := filledZones(1, now)
	for i := range manyNodesBench / 2 {
		name := fmt.Sprint("node-", i)
		z.setNode(name, "zone-0", member{counted: true}, now)
		z.acquire(name, false, now)
	}
	last := fmt.Sprint("node-", manyNodesBench/2-1)
	for name, at := range map[string]time.Time{"before its turn": now.Add(time.Second), "at its turn": now.Add(100 * time.Hour)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				z.acquire(last, false, at)
			}
		})
	}
}
