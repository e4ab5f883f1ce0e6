package deployment

import (
	"fmt"
	"slices"
	"testing"
)

// stepwise is the rolling update of kube-controller-manager, one step at a time, until no step is possible without
// other pods. The last size is that of the new ReplicaSet.
func stepwise(b bounds, sizes, available []int) []int {
	sizes = slices.Clone(sizes)
	last := len(sizes) - 1
	for {
		before := slices.Clone(sizes)
		total := 0
		for _, n := range sizes {
			total += n
		}
		switch {
		case sizes[last] > b.replicas:
			sizes[last] = b.replicas
			continue
		case sizes[last] < b.replicas && total < b.maxTotal():
			sizes[last] += min(b.maxTotal()-total, b.replicas-sizes[last])
			continue
		}
		may := total - b.minAvailable() - (sizes[last] - available[last])
		if may <= 0 {
			return sizes
		}
		sum := available[last]
		for i := range last {
			if sizes[i] > 0 {
				k := min(may, sizes[i]-available[i])
				if k < 0 {
					return before // kube-controller-manager gives up
				}
				sizes[i], may = sizes[i]-k, may-k
				sum += available[i]
			}
		}
		spare := max(0, sum-b.minAvailable())
		for i := range last {
			k := min(spare, sizes[i])
			sizes[i], spare = sizes[i]-k, spare-k
		}
		if slices.Equal(before, sizes) {
			return sizes
		}
		// Statuses show the reductions before the next step.
		for i := range available {
			available[i] = min(available[i], sizes[i])
		}
	}
}

// TestOnePassEndsWhereKubeControllerManagerEnds: upstream needs up to three passes.
func TestOnePassEndsWhereKubeControllerManagerEnds(t *testing.T) {
	states := 0
	for replicas := 1; replicas <= 5; replicas++ {
		for surge := range 4 {
			for unavailable := range min(replicas, 3) + 1 {
				if surge+unavailable == 0 {
					continue
				}
				d := newDeployment(int32(replicas), within(surge, unavailable))
				b := boundsOf(d)
				var walk func(sets, available []int, left int)
				walk = func(sets, available []int, left int) {
					if len(sets) == 3 {
						states++
						given := []replicaSet{}
						for i, size := range sets {
							s := newOld(fmt.Sprint(i), int32(size), 3-i, having(available[i]))
							s.current = i == 2
							given = append(given, s)
						}
						p := newPass(d, given...)
						got := slices.Clone(sets)
						changes, _ := p.changesFor(p.rollingTargets())
						for _, c := range changes {
							got[int(c.rs.Name[0]-'0')] = c.to
						}
						if want := stepwise(b, sets, slices.Clone(available)); !slices.Equal(got, want) {
							t.Errorf("%+v, sizes %v, available %v: sizes %v, want %v", b, sets, available, got, want)
						}
						return
					}
					for size := range left + 1 {
						for a := range size + 1 {
							walk(append(slices.Clone(sets), size), append(slices.Clone(available), a), left-size)
						}
					}
				}
				walk(nil, nil, b.maxTotal())
				if t.Failed() {
					return
				}
			}
		}
	}
	t.Logf("%d states", states)
}
