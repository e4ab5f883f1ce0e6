package main

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestJudge(t *testing.T) {
	begin := time.Unix(1e9, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	owned := func(what string, gone time.Time, blocking bool) *life {
		return &life{what: what, made: begin, gone: gone, refs: map[types.UID]*reference{"owner": {from: begin, blocking: blocking}}}
	}
	for _, tt := range []struct {
		name         string
		owner        life
		dependent    *life
		would        []would
		deletions    []deletion
		wantFalses   []string
		wantMisses   []string
		wantCompared int
	}{
		{name: "both delete it", owner: life{what: "owner", gone: at(10)}, dependent: owned("dependent", at(12), false),
			would: []would{{at: at(11), request: "delete", uid: "dependent"}}, deletions: []deletion{{at(12), "dependent"}}, wantCompared: 1},
		{name: "its owner lives", owner: life{what: "owner"}, dependent: owned("dependent", at(12), false),
			would:      []would{{at: at(11), request: "delete", uid: "dependent"}},
			wantFalses: []string{begin.Add(11*time.Second).Format(time.TimeOnly) + ": would delete dependent: its owner owner lives"}},
		{name: "its owner waits", owner: life{what: "owner", waiting: at(10)}, dependent: owned("dependent", at(12), false),
			would: []would{{at: at(11), request: "delete", uid: "dependent"}}, deletions: []deletion{{at(12), "dependent"}}, wantCompared: 1},
		{name: "the other leaves it behind", owner: life{what: "owner", gone: at(10)}, dependent: owned("dependent", time.Time{}, false),
			would: []would{{at: at(11), request: "delete", uid: "dependent"}}},
		{name: "it stands to the end", owner: life{what: "owner", waiting: at(10)}, dependent: owned("dependent", time.Time{}, false),
			would:      []would{{at: at(11), request: "delete", uid: "dependent"}},
			wantFalses: []string{begin.Add(11*time.Second).Format(time.TimeOnly) + ": would delete dependent: nobody else has deleted it, and not all of its owners were seen to go"}},
		{name: "its owner was deleted once more, to leave it behind", owner: life{what: "owner", waiting: at(10), changed: at(12)},
			dependent: &life{what: "dependent", made: begin, refs: map[types.UID]*reference{"owner": {from: begin, to: at(13)}}},
			would:     []would{{at: at(11), request: "delete", uid: "dependent"}}},
		{name: "its owner was deleted once more before, to leave it behind", owner: life{what: "owner", waiting: at(1), changed: at(5)},
			dependent:  &life{what: "dependent", made: begin, refs: map[types.UID]*reference{"owner": {from: begin, to: at(20)}}},
			would:      []would{{at: at(11), request: "delete", uid: "dependent"}},
			wantFalses: []string{begin.Add(11*time.Second).Format(time.TimeOnly) + ": would delete dependent: its owner owner lives"}},
		{name: "the record ends too early to tell", owner: life{what: "owner", gone: at(990)}, dependent: owned("dependent", time.Time{}, false),
			would: []would{{at: at(991), request: "delete", uid: "dependent"}}},
		{name: "the other is slow", owner: life{what: "owner", gone: at(10)}, dependent: owned("dependent", at(300), false),
			would: []would{{at: at(11), request: "delete", uid: "dependent"}}, deletions: []deletion{{at(300), "dependent"}}, wantCompared: 1},
		{name: "the other was quicker", owner: life{what: "owner", gone: at(10)}, dependent: owned("dependent", at(11), false),
			deletions: []deletion{{at(11), "dependent"}}},
		{name: "ours had the time", owner: life{what: "owner", gone: at(10)}, dependent: owned("dependent", at(20), false),
			deletions:  []deletion{{at(20), "dependent"}},
			wantMisses: []string{begin.Add(20*time.Second).Format(time.TimeOnly) + ": dependent stood for 10s after its owners"}},
		{name: "an owner is let go before one that blocks it", owner: life{what: "owner", waiting: at(5)}, dependent: owned("dependent", at(20), true),
			would:      []would{{at: at(10), request: "finalize", uid: "owner"}},
			wantFalses: []string{begin.Add(10*time.Second).Format(time.TimeOnly) + ": would let owner go: dependent refers to it"}},
		{name: "an owner is let go before one that does not block it", owner: life{what: "owner", waiting: at(5)}, dependent: owned("dependent", at(20), false),
			would: []would{{at: at(10), request: "finalize", uid: "owner"}}},
		{name: "an owner is let go after what it leaves behind", owner: life{what: "owner"}, dependent: owned("dependent", time.Time{}, false),
			would: []would{{at: at(9), request: "orphan", uid: "dependent"}, {at: at(10), request: "finalize", uid: "owner"}}},
		{name: "an owner is let go before an orphan", owner: life{what: "owner"}, dependent: owned("dependent", time.Time{}, false),
			would:      []would{{at: at(10), request: "finalize", uid: "owner"}},
			wantFalses: []string{begin.Add(10*time.Second).Format(time.TimeOnly) + ": would let owner go: dependent refers to it"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lives := map[types.UID]*life{"owner": &tt.owner, "dependent": tt.dependent}
			got := judge(lives, tt.would, tt.deletions, at(1000))
			if !slices.Equal(got.falses, tt.wantFalses) || !slices.Equal(got.misses, tt.wantMisses) || got.compared != tt.wantCompared {
				t.Errorf("false positives %q, misses %q, compared %d; want %q, %q, %d", got.falses, got.misses, got.compared, tt.wantFalses, tt.wantMisses, tt.wantCompared)
			}
		})
	}
}
