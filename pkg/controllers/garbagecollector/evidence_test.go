package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatAnAnswerSays(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	status := func(code int, reason metav1.StatusReason, details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Details: details}}
	}
	unexpected := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", widgets, "o", "404 page not found", 0, true)
	}
	for _, tt := range []struct {
		name string
		obj  metav1.Object
		err  error
		want saying
	}{
		{"the object", newThing("a", "o", uid(1)), nil, found},
		{"an object without UID", newThing("a", "o", ""), nil, unable},
		{"not found, by name", nil, apierrors.NewNotFound(widgets, "o"), missing},
		{"the same, wrapped", nil, fmt.Errorf("get: %w", apierrors.NewNotFound(widgets, "o")), missing},
		{"not found, another name", nil, apierrors.NewNotFound(widgets, "p"), unnamed},
		{"404 in plain text, of which client-go makes a status with the name", nil, unexpected(http.StatusNotFound), unnamed},
		{"404 without details", nil, status(http.StatusNotFound, metav1.StatusReasonNotFound, nil), unnamed},
		{"404 without a reason", nil, status(http.StatusNotFound, "", &metav1.StatusDetails{Name: "o"}), unnamed},
		{"gone", nil, status(http.StatusGone, metav1.StatusReasonGone, &metav1.StatusDetails{Name: "o"}), unable},
		{"not found with another code", nil, status(http.StatusInternalServerError, metav1.StatusReasonNotFound, &metav1.StatusDetails{Name: "o"}), unnamed},
		{"401", nil, apierrors.NewUnauthorized("no"), refused},
		{"403", nil, apierrors.NewForbidden(widgets, "o", errors.New("no")), refused},
		{"405", nil, apierrors.NewMethodNotSupported(widgets, "get"), refused},
		{"406", nil, unexpected(http.StatusNotAcceptable), refused},
		{"429", nil, apierrors.NewTooManyRequests("later", 1), unable},
		{"500", nil, apierrors.NewInternalError(errors.New("conversion webhook failed")), unable},
		{"503", nil, apierrors.NewServiceUnavailable("starting"), unable},
		{"504", nil, apierrors.NewTimeoutError("slow", 1), unable},
		{"200 that cannot be read", nil, errors.New("unexpected end of JSON input"), unable},
		{"no answer", nil, context.DeadlineExceeded, unable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := sayingOf(tt.obj, tt.err, "o"); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	now := began.Add(time.Hour)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	foundOne := func(n int, leaving bool) reply {
		return reply{says: found, uid: uid(n), leaving: leaving, asked: now, answered: now}
	}
	missed := func(asked, first time.Duration) reply {
		r := reply{}.then(missing, nil, ago(first), ago(first))
		return r.then(missing, nil, ago(asked), ago(asked))
	}
	failed := func(says saying, n int, asked time.Duration) reply {
		return reply{says: says, failures: n, asked: ago(asked), answered: ago(asked)}
	}
	for _, tt := range []struct {
		name string
		t    testimony
		want ruling
	}{
		{"the feed shows the owner", testimony{}, ruling{verdict: present, witness: byFeed}},
		{"whatever answers say", testimony{live: missed(0, time.Hour), heard: time.Hour}, ruling{verdict: present, witness: byFeed}},

		{"unseen, and nobody has asked", testimony{suspicion: suspicion{doubt: unseen}, heard: time.Hour}, ruling{ask: true}},
		{"deleted, as its feed told, and nobody has asked", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, heard: time.Hour}, ruling{ask: true}},
		{"waiting, as its feed shows, and nobody has asked", testimony{suspicion: suspicion{doubt: leaving}, heard: time.Hour}, ruling{ask: true}},
		{"another name, and nobody has asked", testimony{suspicion: suspicion{doubt: mismatched}, heard: time.Hour}, ruling{ask: true}},

		{"found", testimony{suspicion: suspicion{doubt: mismatched}, live: foundOne(1, false)}, ruling{verdict: present, witness: byAnswer}},
		{"found, and no feed will tell of its deletion", testimony{suspicion: suspicion{doubt: unseen}, live: foundOne(1, false)}, ruling{verdict: present, witness: byAnswer, after: 5 * time.Minute}},
		{"found although its feed told of its deletion", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, live: foundOne(1, false)}, ruling{verdict: present, witness: byAnswer, after: 5 * time.Minute}},
		{"found waiting", testimony{suspicion: suspicion{doubt: leaving}, live: foundOne(1, true)}, ruling{verdict: waiting, witness: byAnswer}},
		{"no longer waiting, whatever the feed shows", testimony{suspicion: suspicion{doubt: leaving}, live: foundOne(1, false)}, ruling{verdict: present, witness: byAnswer}},
		{"found another under its name", testimony{suspicion: suspicion{doubt: unseen}, live: foundOne(2, false)}, ruling{verdict: absent, witness: otherUID}},
		{"found another that waits", testimony{suspicion: suspicion{doubt: unseen}, live: foundOne(2, true)}, ruling{verdict: absent, witness: otherUID}},
		{"found too long ago", testimony{suspicion: suspicion{doubt: unseen}, live: reply{says: found, uid: uid(1), asked: ago(liveFor + 1), answered: ago(liveFor + 1)}}, ruling{ask: true}},
		{"another found too long ago", testimony{suspicion: suspicion{doubt: unseen}, live: reply{says: found, uid: uid(2), asked: ago(liveFor + 1), answered: ago(liveFor + 1)}}, ruling{ask: true}},
		{"another found ten seconds ago", testimony{suspicion: suspicion{doubt: unseen}, live: reply{says: found, uid: uid(2), asked: ago(liveFor), answered: ago(liveFor)}}, ruling{verdict: absent, witness: otherUID}},

		{"missing, alone", testimony{suspicion: suspicion{doubt: unseen}, live: missed(0, 0)}, ruling{after: 2 * time.Second, held: "unconfirmed"}},
		{"missing, and its feed told of the deletion", testimony{suspicion: suspicion{doubt: unseen, gone: now}, live: missed(0, 0)}, ruling{verdict: absent, witness: deletedToo}},
		{"missing, and its feed lacks it, too", testimony{suspicion: suspicion{doubt: unseen}, live: missed(0, 0), heard: 2 * time.Second}, ruling{verdict: absent, witness: notListed}},
		{"missing where it is said to be, and its feed shows it elsewhere", testimony{suspicion: suspicion{doubt: mismatched}, live: missed(0, 0), heard: 2 * time.Second}, ruling{verdict: absent, witness: notListed}},
		{"missing, and its feed has only just been filled", testimony{suspicion: suspicion{doubt: unseen}, live: missed(0, 0), heard: 2*time.Second - 1}, ruling{after: 1, held: "unconfirmed"}},
		{"missing twice", testimony{suspicion: suspicion{doubt: unseen}, live: missed(0, 2*time.Second)}, ruling{verdict: absent, witness: askedTwice}},
		{"missing twice in too short a time", testimony{suspicion: suspicion{doubt: unseen}, live: missed(0, 2*time.Second-1)}, ruling{after: 1, held: "unconfirmed"}},
		{"missing a while ago, alone: not asked again too early", testimony{suspicion: suspicion{doubt: unseen}, live: missed(1500*time.Millisecond, 1500*time.Millisecond)}, ruling{after: 500 * time.Millisecond, held: "unconfirmed"}},
		{"and asked again then", testimony{suspicion: suspicion{doubt: unseen}, live: missed(2*time.Second, 2*time.Second)}, ruling{ask: true}},
		{"missing too long ago, and deleted, as its feed told", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, live: missed(liveFor+1, time.Hour)}, ruling{ask: true}},
		{"missing too long ago, and its feed lacks it", testimony{suspicion: suspicion{doubt: unseen}, heard: time.Hour, live: missed(liveFor+1, time.Hour)}, ruling{ask: true}},

		{"404 of a server that does not know the type", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, heard: time.Hour, live: failed(unnamed, 1, 0)}, ruling{after: time.Second, held: "unnamed_404"}},
		{"for hours", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, heard: time.Hour, live: failed(unnamed, 100, 0)}, ruling{after: time.Minute, held: "unnamed_404"}},
		{"403", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, heard: time.Hour, live: failed(refused, 2, 0)}, ruling{after: 2 * time.Second, held: "refused"}},
		{"no answer", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, heard: time.Hour, live: failed(unable, 3, 0)}, ruling{after: 4 * time.Second, held: "unable"}},
		{"no answer, and the pause is over", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, live: failed(unable, 3, 4*time.Second)}, ruling{ask: true}},
		{"no answer, and another dependent asks in the pause", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, live: failed(unable, 3, 3*time.Second)}, ruling{after: time.Second, held: "unable"}},

		{"its type is still being listed", testimony{suspicion: suspicion{doubt: unseen}, syncing: time.Second}, ruling{after: 9 * time.Second, held: "syncing"}},
		{"and takes too long", testimony{suspicion: suspicion{doubt: unseen}, syncing: 10 * time.Second}, ruling{ask: true}},
		{"but it was seen before", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, syncing: time.Second}, ruling{ask: true}},
		{"or is seen elsewhere", testimony{suspicion: suspicion{doubt: mismatched}, syncing: time.Second}, ruling{ask: true}},

		{"an unknown kind", testimony{suspicion: suspicion{doubt: unseen}, problem: unserved, live: missed(0, time.Hour)}, ruling{held: "unknown_kind"}},
		{"an unknown kind whose removal discovery shows, of an owner that was never seen", testimony{suspicion: suspicion{doubt: unseen}, problem: unserved, removed: true}, ruling{held: "unknown_kind"}},
		{"an owner deleted before its kind", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, problem: unserved, removed: true}, ruling{verdict: absent, witness: kindRemoved}},
		{"an owner deleted, and discovery is older", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, problem: unserved}, ruling{held: "unknown_kind"}},
		{"an owner deleted, and its group cannot be discovered", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, problem: undiscovered, removed: true}, ruling{held: "undiscovered"}},
		{"an owner in some namespace, of what is in none", testimony{suspicion: suspicion{doubt: mismatched}, problem: outOfReach, live: missed(0, time.Hour)}, ruling{held: "scope"}},
		{"a version that cannot be read", testimony{suspicion: suspicion{doubt: unseen}, problem: unparsable}, ruling{held: "unparsable_version"}},
		{"a version that is not served", testimony{suspicion: suspicion{doubt: unseen}, problem: otherVersion}, ruling{held: "unserved_version"}},
		{"a kind of two types", testimony{suspicion: suspicion{doubt: unseen, gone: ago(time.Hour)}, problem: ambiguous, removed: true}, ruling{held: "ambiguous_kind"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.t.uid = uid(1)
			if got := judge(tt.t, now); got != tt.want {
				t.Errorf("ruling is %+v, want %+v", got, tt.want)
			}
		})
	}
}

// Nothing counts as absent without an answer that is at most ten seconds old and names the object, except what was seen to go before its kind did.
func TestNothingIsAbsentWithoutProof(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 13))
	now := began.Add(time.Hour)
	span := func() time.Duration { return time.Duration(r.IntN(14000)) * time.Millisecond }
	absences := 0
	for range 50_000 {
		says := []saying{unasked, found, missing, unnamed, refused, unable}[r.IntN(6)]
		live := reply{says: says}
		if says != unasked {
			live.answered = now.Add(-span())
			live.asked = live.answered.Add(-span() / 2)
		}
		switch says {
		case found:
			live.uid, live.leaving = uid(r.IntN(2)), r.IntN(2) == 0
		case missing:
			live.later = live.asked.Add(-span() / 3)
			if r.IntN(2) == 0 {
				live.earlier = live.later.Add(-2*time.Second - span()/3)
			}
		case unnamed, refused, unable:
			live.failures = 1 + r.IntN(3)
		}
		tm := testimony{
			suspicion: suspicion{doubt: doubt(r.IntN(5)), since: now.Add(-3 * span())}, uid: uid(1), look: now.Add(-span()), live: live, removed: r.IntN(2) == 0,
			problem: []problem{fine, fine, fine, unparsable, outOfReach, undiscovered, unserved, otherVersion, ambiguous}[r.IntN(9)],
		}
		if r.IntN(2) == 0 {
			tm.gone = now.Add(-span())
		}
		if r.IntN(2) == 0 {
			tm.heard = span()
		} else {
			tm.syncing = span()
		}
		got := judge(tm, now)
		recent := now.Sub(live.answered) <= liveFor && !live.asked.Before(tm.since)
		lacking := tm.doubt != leaving && tm.heard >= 2*time.Second && now.Sub(tm.since) >= 2*time.Second
		twice := !live.earlier.Before(tm.since) && live.asked.Sub(live.earlier) >= 2*time.Second && !live.earlier.IsZero()
		proof := says == found && recent && live.uid != uid(1) || says == missing && recent && (!tm.gone.IsZero() || lacking || twice)
		removed := tm.problem == unserved && tm.removed && !tm.gone.IsZero()
		switch {
		case got.verdict == absent && (tm.doubt == none || !removed && (tm.problem != fine || !proof)):
			t.Fatalf("%+v is ruled absent: %+v", tm, got)
		case got.verdict == waiting && !(says == found && recent && live.leaving && live.uid == uid(1) && !live.asked.Before(tm.look) && now.Sub(live.answered) <= waitingFor):
			t.Fatalf("%+v is ruled waiting: %+v", tm, got)
		case got.verdict == unknown && !got.ask && got.after <= 0 && tm.problem == fine:
			t.Fatalf("%+v is unknown, and nobody will look again: %+v", tm, got)
		case got.after < 0 || got.ask && got.verdict != unknown:
			t.Fatalf("%+v is ruled %+v", tm, got)
		}
		if got.verdict == absent {
			absences++
		}
	}
	if absences < 1000 {
		t.Errorf("only %d absences: this proves nothing", absences)
	}
}

func TestAnswersInARow(t *testing.T) {
	second := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	o := newThing("a", "o", uid(1)).finalizedBy("foregroundDeletion").deleted()
	var a reply
	for _, step := range []struct {
		says saying
		at   int
		want reply
	}{
		{missing, 1, reply{says: missing, later: second(1)}},
		{missing, 2, reply{says: missing, later: second(1)}},
		{missing, 3, reply{says: missing, earlier: second(1), later: second(3)}},
		{missing, 4, reply{says: missing, earlier: second(1), later: second(3)}},
		{unable, 5, reply{says: unable, earlier: second(1), later: second(3), failures: 1}},
		{unnamed, 6, reply{says: unnamed, earlier: second(1), later: second(3), failures: 2}},
		{missing, 7, reply{says: missing, earlier: second(3), later: second(7)}},
		{found, 8, reply{says: found, uid: uid(1), leaving: true}},
		{missing, 9, reply{says: missing, later: second(9)}},
		{refused, 10, reply{says: refused, later: second(9), failures: 1}},
	} {
		step.want.asked, step.want.answered = second(step.at), second(step.at+30)
		if a = a.then(step.says, o, second(step.at), second(step.at+30)); a != step.want {
			t.Fatalf("after %d s the answer is %+v, want %+v", step.at, a, step.want)
		}
	}
	if late := a.then(found, o, second(9), second(100)); late != a {
		t.Errorf("one that was asked for before and came later makes it %+v, want %+v", late, a)
	}
}

// Who wrote a reference had seen the owner. What was asked for before says nothing of it.
func TestOnlyAnswersCountThatWereAskedForAfterTheReferenceWasSeen(t *testing.T) {
	now := began.Add(time.Hour)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	of := func(says saying, n int, asked ...time.Duration) (a reply) {
		for _, d := range asked {
			a = a.then(says, newThing("a", "o", uid(n)).finalizedBy("foregroundDeletion").deleted(), ago(d), ago(d))
		}
		return a
	}
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		doubt doubt
		since time.Duration // ago
		heard time.Duration
		live  reply
		want  ruling
	}{
		{"a namesake was found before", unseen, 100 * ms, time.Hour, of(found, 2, 200*ms), ruling{ask: true}},
		{"and is found now", unseen, 100 * ms, time.Hour, of(found, 2, 50*ms), ruling{verdict: absent, witness: otherUID}},
		{"found waiting before", leaving, 100 * ms, time.Hour, of(found, 1, 200*ms), ruling{ask: true}},
		{"missing before", unseen, 100 * ms, time.Hour, of(missing, 0, 200*ms), ruling{ask: true}},
		{"missing, and the feed has had no time to show it", unseen, 100 * ms, time.Hour, of(missing, 0, 50*ms), ruling{after: 1900 * ms, held: "unconfirmed"}},
		{"missing, and the feed had all but enough", unseen, 2*time.Second - 1, time.Hour, of(missing, 0, 0), ruling{after: 1, held: "unconfirmed"}},
		{"missing, and the feed had enough", unseen, 2 * time.Second, time.Hour, of(missing, 0, 0), ruling{verdict: absent, witness: notListed}},
		{"missing, and its feed shows it waiting", leaving, time.Hour, time.Hour, of(missing, 0, 0), ruling{after: 2 * time.Second, held: "unconfirmed"}},
		{"missing an hour before and once since", unseen, time.Minute, 0, of(missing, 0, time.Hour, 0), ruling{after: 2 * time.Second, held: "unconfirmed"}},
		{"missing an hour before and twice since", unseen, time.Minute, 0, of(missing, 0, time.Hour, 3*time.Second, 0), ruling{verdict: absent, witness: askedTwice}},
		{"missing many times, but only since a second", unseen, time.Second, 0, of(missing, 0, 3*time.Second, 1500*ms, 900*ms, 0), ruling{after: 1100 * ms, held: "unconfirmed"}},
		{"a pause after failures lasts for all", unseen, 100 * ms, 0, of(unable, 0, 200*ms), ruling{after: 800 * ms, held: "unable"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := judge(testimony{suspicion: suspicion{doubt: tt.doubt, since: ago(tt.since)}, uid: uid(1), heard: tt.heard, live: tt.live, look: ago(tt.since)}, now)
			if got != tt.want {
				t.Errorf("ruling is %+v, want %+v", got, tt.want)
			}
		})
	}
}

// That an owner waits can end. It counts at the look that asks, and not for long.
func TestWhetherAnOwnerWaitsIsAskedAtEachLook(t *testing.T) {
	o := newThing("a", "o", uid(1)).finalizedBy("foregroundDeletion").deleted()
	live := reply{}.then(found, o, began, began.Add(3*time.Second)) // the API server is slow
	for _, tt := range []struct {
		name      string
		look, now time.Duration
		want      ruling
	}{
		{"the look that asked", 0, 3 * time.Second, ruling{verdict: waiting, witness: byAnswer}},
		{"one that began before", -time.Second, 3 * time.Second, ruling{verdict: waiting, witness: byAnswer}},
		{"one that began while the answer was on its way", 1, 3 * time.Second, ruling{ask: true}},
		{"its request had to wait a little", 0, 4 * time.Second, ruling{verdict: waiting, witness: byAnswer}},
		{"and longer", 0, 4*time.Second + 1, ruling{ask: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := judge(testimony{suspicion: suspicion{doubt: leaving}, uid: uid(1), live: live, look: began.Add(tt.look)}, began.Add(tt.now))
			if got != tt.want {
				t.Errorf("ruling is %+v, want %+v", got, tt.want)
			}
		})
	}
}

// Asked again and again, an API server that takes long, or fails in between, still proves something.
func TestASlowOrFailingAPIServerIsBelievedInTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration
		fails bool
		gone  bool
		most  int
	}{
		{"each answer takes 1.1 s, and the deletion was told", 1100 * time.Millisecond, false, true, 1},
		{"each answer takes 9 s, and nothing was told", 9 * time.Second, false, false, 2},
		{"every second request fails", time.Millisecond, true, false, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, live, asks := began, reply{}, 0
			tm := testimony{suspicion: suspicion{doubt: unseen, since: began}, uid: uid(1), look: began}
			if tt.gone {
				tm.gone = began
			}
			for range 100 {
				tm.live = live
				switch r := judge(tm, now); {
				case r.verdict == absent && asks <= tt.most:
					return
				case r.verdict == absent:
					t.Fatalf("asked %d times, want %d at most", asks, tt.most)
				case r.ask:
					says := missing
					if tt.fails && asks%2 == 1 {
						says = unable
					}
					asked := now
					now = now.Add(tt.takes)
					live, asks = live.then(says, nil, asked, now), asks+1
				default:
					now = now.Add(r.after)
				}
			}
			t.Errorf("asked %d times, and never ruled", asks)
		})
	}
}

// An owner that was found, and of whose deletion no feed would tell, is asked for again when its turn comes, however often its dependents are looked at.
func TestOwnersThatNoFeedShowsArePolled(t *testing.T) {
	answered := reply{says: found, uid: uid(1), asked: began, answered: began, poll: began.Add(pollEvery)}
	base := testimony{suspicion: suspicion{doubt: unseen, since: began.Add(-time.Minute)}, uid: uid(1), live: answered}
	for _, tt := range []struct {
		name string
		edit func(*testimony)
		age  time.Duration
		want ruling
	}{
		{"before its turn", func(*testimony) {}, time.Minute, ruling{verdict: present, witness: byAnswer, after: pollEvery - time.Minute}},
		{"when its turn has come", func(*testimony) {}, pollEvery, ruling{ask: true}},
		{"a feed tells of its deletion", func(t *testimony) { t.gone = began.Add(time.Second) }, time.Minute, ruling{ask: true}},
		{"a feed could witness, and does not show it", func(t *testimony) { t.heard = time.Second }, time.Minute, ruling{ask: true}},
		{"another object has its name", func(t *testimony) { t.uid = uid(2) }, time.Minute, ruling{ask: true}},
		{"it was leaving", func(t *testimony) { t.live.leaving = true }, time.Minute, ruling{ask: true}},
		{"the reference is newer than the answer", func(t *testimony) { t.since = began.Add(time.Second) }, time.Minute, ruling{ask: true}},
	} {
		said := base
		tt.edit(&said)
		if got := judge(said, began.Add(tt.age)); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// Owners that were asked for together are not asked for together again.
func TestPollsAreSpread(t *testing.T) {
	s := newShell(t)
	s.get = func(string, int) (*thing, error) { return newThing("", "n", uid(1)), nil }
	const many = 1000
	for n := range many {
		at := target{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, name: fmt.Sprint("n", n)}
		if err := s.owners.ask(t.Context(), at, reply{}); err != nil {
			t.Fatal(err)
		}
	}
	slots := map[time.Time]bool{}
	for _, q := range s.owners.replies.known {
		slots[q.answer.poll] = true
		if wait := q.answer.poll.Sub(s.clock.Now()); wait < pollEvery || wait > pollEvery+pollJitter {
			t.Errorf("asked again after %v", wait)
		}
	}
	if len(slots) < many/2 {
		t.Errorf("%d moments for %d owners", len(slots), many)
	}
	s.clock.Step(pollEvery - time.Second)
	s.owners.prune()
	if left := len(s.owners.replies.known); left != many {
		t.Errorf("%d replies are left, and those who refer to the other owners would all ask", left)
	}
}

// The user turns a foreground deletion into one that leaves orphans while a slow owner of the same object is asked for. Nobody tells but the API server.
func TestThatAnOwnerWaitsIsNoOlderThanItSeems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShell(t)
		changed := time.Now().Add(time.Minute + time.Second)
		deletes := 0
		s.on(func(_ context.Context, verb, _, _, name string) (*thing, error) {
			switch {
			case verb == "delete":
				deletes++
				return nil, nil
			case name == "slow": // while the answer about the other grows old
				time.Sleep(9 * time.Second)
				return nil, notFound(name)
			}
			o := newThing("a", name, uid(10)).finalizedBy("foregroundDeletion").deleted()
			if time.Now().After(changed) {
				o.Finalizers = []string{"orphan"}
			}
			return o, nil
		})
		check(t, s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(ref("v1", "ConfigMap", "waits", uid(10)), ref("v1", "ConfigMap", "slow", uid(11)))))
		time.Sleep(time.Minute)
		for range 5 {
			got := s.look(t, keyOf(uid(2)))
			time.Sleep(max(got.RequeueAfter, time.Second))
		}
		if deletes > 0 {
			t.Errorf("%d deletes were sent of what is to be kept", deletes)
		}
	})
}
