package main

import (
	"strings"
	"time"
)

var once = map[string]int{"api-restart": 1, "api-down": 1, "api-pause": 1, "compaction": 2}

type step struct {
	at, lasts time.Duration
	kind      kind
	slot      int
	seed      uint64
}

type plan struct {
	kinds []string
	steps []step
}

func (r *rig) schedule() plan {
	draw := r.random("faults")
	var chosen []kind
	for _, k := range kinds {
		lot := draw.IntN(2) == 0
		if r.options.only == "" && lot || r.options.only != "" && contains(r.options.only, k.name) {
			chosen = append(chosen, k)
		}
	}
	var p plan
	for _, k := range chosen {
		p.kinds = append(p.kinds, k.name)
	}
	used := map[string]int{}
	pace := 500 + draw.IntN(4000)
	for at := time.Duration(0); len(chosen) > 0 && at < r.options.length-2*time.Second; {
		k := chosen[draw.IntN(len(chosen))]
		s := step{
			at: at, kind: k, slot: draw.IntN(r.options.managers), seed: draw.Uint64(),
			lasts: min(k.longest/10+time.Duration(draw.Int64N(int64(k.longest))), r.options.length-at),
		}
		at += time.Duration(100+draw.IntN(pace)) * time.Millisecond
		if most, limited := once[k.name]; limited && used[k.name] >= most {
			continue
		}
		used[k.name]++
		p.steps = append(p.steps, s)
	}
	return p
}

func contains(list, word string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if item == word {
			return true
		}
	}
	return false
}
