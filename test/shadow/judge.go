package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// late is how much later than it happened something may come into the record.
	late = 2 * time.Second
	// lasting is how long the collector that acts may take for an object, at least.
	lasting = time.Minute
	// quick is how long an object may have stood after its owners for ours not to be expected to have decided about it.
	quick = 5 * time.Second
)

// would is a request that ours would have sent.
type would struct {
	at      time.Time
	request string
	uid     types.UID
}

// deletion is one that the other collector was granted.
type deletion struct {
	at   time.Time
	what string
}

// result is what a run has shown.
type result struct {
	would     map[string]int // by request
	compared  int            // deletions of the other that ours would have done
	quicker   int            // those that it had no time for
	deletions int            // of the other
	slow      int            // those that it did more than a minute after ours would have
	elsewhere int            // what ours would have deleted, and somebody else did
	unseen    int            // what ours would have done to objects that were not recorded
	falses    []string
	misses    []string
	left      []string // what the other has left behind, though its owners are gone
}

// judge compares. end is when the record ends: about what would have been done shortly before nothing can be said.
func judge(lives map[types.UID]*life, would []would, deletions []deletion, end time.Time) result {
	r := result{would: map[string]int{}, deletions: len(deletions)}
	byOther, ours := map[string]time.Time{}, map[string]bool{}
	for _, d := range deletions {
		byOther[d.what] = d.at
	}
	dependents := map[types.UID][]types.UID{}
	for uid, l := range lives {
		for owner := range l.refs {
			dependents[owner] = append(dependents[owner], uid)
		}
	}
	left := map[types.UID]time.Time{} // what would have been left behind, since when
	for _, w := range would {
		if _, ok := left[w.uid]; !ok && w.request == "orphan" {
			left[w.uid] = w.at
		}
	}
	for _, w := range would {
		r.would[w.request]++
		l := lives[w.uid]
		if l == nil {
			r.unseen++
			continue
		}
		switch w.request {
		case "delete":
			ours[l.what] = true
			if text := wrongDelete(lives, l, w.at, end); text != "" {
				r.falses = append(r.falses, fmt.Sprintf("%s: would delete %s: %s", w.at.Format(time.TimeOnly), l.what, text))
			} else if at, ok := byOther[l.what]; !ok && l.gone.IsZero() && w.at.Add(lasting).Before(end) {
				r.left = append(r.left, fmt.Sprintf("%s: %s", w.at.Format(time.TimeOnly), l.what))
			} else if !ok {
				r.elsewhere++
			} else if at.Sub(w.at) > lasting {
				r.slow++
			}
		case "finalize":
			if text := wrongFinalize(lives, l, w.uid, dependents[w.uid], left, w.at); text != "" {
				r.falses = append(r.falses, fmt.Sprintf("%s: would let %s go: %s", w.at.Format(time.TimeOnly), l.what, text))
			}
		}
	}
	byName := map[string]*life{}
	for _, l := range lives {
		byName[l.what] = l
	}
	for _, d := range deletions {
		l := byName[d.what]
		switch {
		case ours[d.what]:
			r.compared++
		case l == nil || stood(lives, l, d.at) < quick:
			r.quicker++
		default:
			r.misses = append(r.misses, fmt.Sprintf("%s: %s stood for %v after its owners", d.at.Format(time.TimeOnly), d.what, stood(lives, l, d.at).Round(time.Millisecond)))
		}
	}
	return r
}

// wrongDelete says why an object should not have been deleted at a moment; empty: it should.
func wrongDelete(lives map[types.UID]*life, l *life, at, end time.Time) string {
	for uid, ref := range l.refs {
		owner := lives[uid]
		if owner == nil || over(ref.to, at) || ref.from.After(at.Add(late)) {
			continue // it never was, as far as was seen, or is no owner
		}
		waited := over(owner.waiting, at.Add(late)) && !over(owner.changed, at.Add(-late))
		if !over(owner.gone, at.Add(late)) && !waited && !over(ref.to, at.Add(late)) {
			return "its owner " + owner.what + " lives"
		}
	}
	if !l.gone.IsZero() || !at.Add(lasting).Before(end) { // the other may be slow: its requests are limited
		return ""
	}
	for _, ref := range l.refs {
		if !ref.to.IsZero() {
			return "" // its owner was deleted once more, this time to leave it behind
		}
	}
	if ownersGone(lives, l, at) {
		return "" // it is the other that has missed it
	}
	return "nobody else has deleted it, and not all of its owners were seen to go"
}

// ownersGone reports whether every owner was seen, and seen to go.
func ownersGone(lives map[types.UID]*life, l *life, at time.Time) bool {
	for uid := range l.refs {
		if owner := lives[uid]; owner == nil || !over(owner.gone, at.Add(late)) {
			return false
		}
	}
	return true
}

// wrongFinalize says why an owner should not have been let go at a moment; empty: it should.
func wrongFinalize(lives map[types.UID]*life, owner *life, uid types.UID, dependents []types.UID, left map[types.UID]time.Time, at time.Time) string {
	for _, dependent := range dependents {
		l := lives[dependent]
		ref := l.refs[uid]
		if over(left[dependent], at.Add(late)) {
			continue // its reference would be gone: the request for that was not sent either
		}
		stands := !over(l.gone, at.Add(late)) && !over(ref.to, at.Add(late)) && ref.from.Before(at.Add(-late))
		if stands && (ref.blocking || owner.waiting.IsZero()) {
			return l.what + " refers to it"
		}
	}
	return ""
}

// stood is how long an object had been without owners.
func stood(lives map[types.UID]*life, l *life, at time.Time) time.Duration {
	last := l.made
	for uid := range l.refs {
		owner := lives[uid]
		if owner == nil {
			continue
		}
		end := owner.gone
		if !owner.waiting.IsZero() && (end.IsZero() || owner.waiting.Before(end)) {
			end = owner.waiting
		}
		if end.After(last) {
			last = end
		}
	}
	return at.Sub(last)
}

// print tells the result, and returns whether there are false positives.
func (r result) print(out io.Writer) bool {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	say("would have sent:")
	for _, request := range slices.Sorted(maps.Keys(r.would)) {
		say("  %-9s %6d", request, r.would[request])
	}
	say("of the %d deletions by kube-controller-manager's collector", r.deletions)
	say("  %6d would have been done, too, %d of them more than %v earlier", r.compared, r.slow, lasting)
	say("  %6d were done within %v of the end of the owners, before ours had come to it", r.quicker, quick)
	say("  %6d were missed", len(r.misses))
	tell(say, r.misses)
	say("%d of what would have been deleted somebody else deleted, as with a namespace; %d requests are about objects that were not recorded", r.elsewhere, r.unseen)
	say("%d objects without owners were left behind by the other", len(r.left))
	tell(say, r.left)
	say("false positives: %d", len(r.falses))
	tell(say, r.falses)
	return len(r.falses) > 0
}

func tell(say func(string, ...any), lines []string) {
	const most = 50
	lines = slices.SortedFunc(slices.Values(lines), cmp.Compare)
	for _, line := range lines[:min(most, len(lines))] {
		say("    %s", line)
	}
	if len(lines) > most {
		say("    and %d more", len(lines)-most)
	}
}
