package garbagecollector

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"minikcm/internal/fakeapi"
)

func TestDecide(t *testing.T) {
	const (
		background = metav1.DeletePropagationBackground
		inFront    = metav1.DeletePropagationForeground
		letting    = metav1.DeletePropagationOrphan
	)
	of := func(v ...ownerState) []ownerState { return v }
	for _, tt := range []struct {
		name          string
		marks         marks
		owners        []ownerState
		hasDependents bool
		want          decision
	}{
		{"one is gone", 0, of(absent), false, decision{action: remove, policy: background}},
		{"one is gone, and it has dependents", 0, of(absent), true, decision{action: remove, policy: background}},
		{"one waits, and it has none", 0, of(waitingForDependents), false, decision{action: remove, policy: background}},
		{"one waits, and it has dependents", 0, of(waitingForDependents), true, decision{action: remove, policy: inFront}},
		{"it is to be orphaned by default", orphaning, of(absent), true, decision{action: remove, policy: letting}},
		{"it is to wait by default", foreground, of(absent), false, decision{action: remove, policy: inFront}},
		{"it is to be orphaned by default, but its owner waits for all below", orphaning, of(waitingForDependents), true, decision{action: remove, policy: inFront}},
		{"one lives, the others do not", 0, of(absent, solid, waitingForDependents), true, decision{action: release, refs: []int{0, 2}}},
		{"one is unknown", 0, of(unknown), false, decision{action: await}},
		{"one lives, one unknown", 0, of(solid, unknown), true, decision{action: keep}},
		{"it is being deleted", terminating, of(absent), true, decision{action: keep}},
	} {
		if got := decide(tt.marks, tt.owners, tt.hasDependents); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// The invariants hold for every combination of up to four owners.
func TestSolidOwnersKeepObjects(t *testing.T) {
	for n := range 4 * 4 * 4 * 4 * 5 * 32 {
		all := []ownerState{ownerState(n % 4), ownerState(n / 4 % 4), ownerState(n / 16 % 4), ownerState(n / 64 % 4)}
		owners, m := all[:n/256%5], marks(n/1280%16)
		got := decide(m, owners, n/1280 >= 16)
		isSolid, isUnknown := slices.Contains(owners, solid), slices.Contains(owners, unknown)
		if got.action == remove && (len(owners) == 0 || isSolid || isUnknown || m.has(terminating)) || got.action == release && !isSolid ||
			(got.action == remove) != (got.policy != "") || (got.action == release) != (len(got.refs) > 0) {
			t.Fatalf("%v with owners %v: decision is %+v", m, owners, got)
		}
		for _, n := range got.refs {
			if owners[n] == solid || owners[n] == unknown {
				t.Fatalf("%v with owners %v is released from owner %d", m, owners, n)
			}
		}
	}
}

func TestClassifyRead(t *testing.T) {
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
		want readResult
	}{
		{"the object", newThing("a", "o", uid(1)), nil, found},
		{"an object without UID", newThing("a", "o", ""), nil, unavailable},
		{"not found, by name", nil, apierrors.NewNotFound(widgets, "o"), missing},
		{"not found, another name", nil, apierrors.NewNotFound(widgets, "p"), unnamed404},
		{"404 in plain text, of which client-go makes a status with the name", nil, unexpected(http.StatusNotFound), unnamed404},
		{"404 without details", nil, status(http.StatusNotFound, metav1.StatusReasonNotFound, nil), unnamed404},
		{"404 without a reason", nil, status(http.StatusNotFound, "", &metav1.StatusDetails{Name: "o"}), unnamed404},
		{"not found with another code", nil, status(http.StatusInternalServerError, metav1.StatusReasonNotFound, &metav1.StatusDetails{Name: "o"}), unnamed404},
		{"401", nil, apierrors.NewUnauthorized("no"), refused},
		{"403", nil, apierrors.NewForbidden(widgets, "o", errors.New("no")), refused},
		{"405", nil, apierrors.NewMethodNotSupported(widgets, "get"), refused},
		{"406", nil, unexpected(http.StatusNotAcceptable), refused},
		{"429", nil, apierrors.NewTooManyRequests("later", 1), unavailable},
		{"500", nil, apierrors.NewInternalError(errors.New("conversion webhook failed")), unavailable},
		{"200 that cannot be read", nil, errors.New("unexpected end of JSON input"), unavailable},
		{"no response", nil, context.DeadlineExceeded, unavailable},
	} {
		fakeapi.Want(t, tt.name, classifyRead(tt.obj, tt.err, "o"), tt.want)
	}
}

func TestClassifyOwner(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	now := began.Add(time.Hour)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	reads := func(result readResult, n int, sent ...time.Duration) (l liveRead) { // of an object with UID n
		for _, d := range sent {
			l = l.next(result, newThing("a", "o", uid(n)), ago(d), ago(d))
		}
		return l
	}
	failed := func(result readResult, n int, sent time.Duration) liveRead {
		return liveRead{result: result, failures: n, sent: ago(sent), received: ago(sent)}
	}
	waits := func(sent, received time.Duration) liveRead {
		return liveRead{result: found, uid: uid(1), waiting: true, sent: ago(sent), received: ago(received)}
	}
	virtual, waiting, deleted := ownerObservation{status: refVirtual}, ownerObservation{status: refWaiting}, ownerObservation{status: refVirtual, deletedAt: ago(time.Hour)}
	seen := func(since time.Duration) ownerObservation {
		return ownerObservation{status: refVirtual, refSeen: ago(since)}
	}
	for _, tt := range []struct {
		name string
		t    evidence
		want classification
	}{
		{"the watch shows the owner", evidence{}, classification{state: solid}},

		{"virtual, without a read", evidence{ownerObservation: virtual, watchedFor: time.Hour}, classification{read: true}},

		{"found", evidence{ownerObservation: ownerObservation{status: refMismatched}, live: reads(found, 1, 0)}, classification{state: solid}},
		{"found waiting", evidence{ownerObservation: waiting, live: waits(0, 0)}, classification{state: waitingForDependents}},
		{"no longer waiting", evidence{ownerObservation: waiting, live: reads(found, 1, 0)}, classification{state: solid}},
		{"found too long ago", evidence{ownerObservation: virtual, watchedFor: s, live: reads(found, 1, readValidFor+1)}, classification{read: true}},

		{"missing once", evidence{ownerObservation: virtual, live: reads(missing, 0, 0)}, classification{after: 2 * s, cause: "unconfirmed"}},
		{"missing, with a deletion event", evidence{ownerObservation: deleted, live: reads(missing, 0, 0)}, classification{state: absent}},
		{"missing, and absent from a current watch", evidence{ownerObservation: virtual, live: reads(missing, 0, 0), watchedFor: 2 * s}, classification{state: absent}},
		{"missing, and the watch is current for too short a time", evidence{ownerObservation: virtual, live: reads(missing, 0, 0), watchedFor: 2*s - 1}, classification{after: 1, cause: "unconfirmed"}},
		{"missing twice", evidence{ownerObservation: virtual, live: reads(missing, 0, 2*s, 0)}, classification{state: absent}},
		{"missing a while ago, once: no second read yet", evidence{ownerObservation: virtual, live: reads(missing, 0, 1500*ms)}, classification{after: 500 * ms, cause: "unconfirmed"}},
		{"missing once: second read", evidence{ownerObservation: virtual, live: reads(missing, 0, 2*s)}, classification{read: true}},
		{"missing too long ago, with a deletion event", evidence{ownerObservation: deleted, live: reads(missing, 0, time.Hour, readValidFor+1)}, classification{read: true}},

		{"403", evidence{ownerObservation: deleted, watchedFor: time.Hour, live: failed(refused, 2, 0)}, classification{after: 2 * s, cause: "refused"}},
		{"no response, within the back-off", evidence{ownerObservation: deleted, live: failed(unavailable, 3, 3*s)}, classification{after: s, cause: "unable"}},

		{"its type is still being listed", evidence{ownerObservation: virtual, listingFor: s}, classification{after: 9 * s, cause: "syncing"}},
		{"and takes too long", evidence{ownerObservation: virtual, listingFor: 10 * s}, classification{read: true}},
		{"but it was seen before", evidence{ownerObservation: deleted, listingFor: s}, classification{read: true}},

		{"an unknown kind", evidence{ownerObservation: virtual, problem: unknownKind, live: reads(missing, 0, time.Hour, 0)}, classification{cause: "unknown_kind"}},
		{"an unknown kind whose removal discovery shows, of an owner that was never seen", evidence{ownerObservation: virtual, problem: unknownKind, discovered: now}, classification{cause: "unknown_kind"}},
		{"an owner deleted before its kind", evidence{ownerObservation: deleted, problem: unknownKind, discovered: now}, classification{state: absent}},
		{"an owner deleted, and discovery is older", evidence{ownerObservation: deleted, problem: unknownKind}, classification{cause: "unknown_kind"}},
		{"an owner deleted, and its group cannot be discovered", evidence{ownerObservation: deleted, problem: undiscovered, discovered: now}, classification{cause: "undiscovered"}},
		{"the reference has no UID", evidence{ownerObservation: virtual, live: reads(found, 1, 0)}, classification{cause: "unparsable_version"}},

		// The author of a reference had seen the owner. Reads that were sent before prove nothing.
		{"a namesake was found before the reference", evidence{ownerObservation: seen(100 * ms), watchedFor: time.Hour, live: reads(found, 2, 200*ms)}, classification{read: true}},
		{"and is found now", evidence{ownerObservation: seen(100 * ms), watchedFor: time.Hour, live: reads(found, 2, 50*ms)}, classification{state: absent}},
		{"and is found now, without a watch", evidence{ownerObservation: seen(100 * ms), live: reads(found, 2, 50*ms)}, classification{after: 1900 * ms, cause: "unconfirmed"}},
		{"and is found later, without a watch", evidence{ownerObservation: seen(3 * s), live: reads(found, 2, 500*ms)}, classification{state: absent}},
		{"missing, and the feed has had no time to show it", evidence{ownerObservation: seen(100 * ms), watchedFor: time.Hour, live: reads(missing, 0, 50*ms)}, classification{after: 1900 * ms, cause: "unconfirmed"}},
		{"missing, and its feed shows it waiting", evidence{ownerObservation: waiting, watchedFor: time.Hour, live: reads(missing, 0, 0)}, classification{after: 2 * s, cause: "unconfirmed"}},
		{"missing an hour before and once since", evidence{ownerObservation: seen(time.Minute), live: reads(missing, 0, time.Hour, 0)}, classification{after: 2 * s, cause: "unconfirmed"}},
		{"missing an hour before and twice since", evidence{ownerObservation: seen(time.Minute), live: reads(missing, 0, time.Hour, 3*s, 0)}, classification{state: absent}},
		{"missing many times, but only since a second", evidence{ownerObservation: seen(s), live: reads(missing, 0, 3*s, 1500*ms, 900*ms, 0)}, classification{after: 1100 * ms, cause: "unconfirmed"}},
		{"a pause after failures lasts for all", evidence{ownerObservation: seen(100 * ms), live: reads(unavailable, 0, 200*ms)}, classification{after: 800 * ms, cause: "unable"}},

		// The user may turn a foreground deletion into orphaning, so each sync reads a waiting owner.
		{"found waiting by a slow read of the sync", evidence{ownerObservation: waiting, live: waits(3*s, 0), syncBegun: ago(3 * s)}, classification{state: waitingForDependents}},
		{"found waiting, in a sync that began during the read", evidence{ownerObservation: waiting, live: waits(3*s, 0), syncBegun: ago(3*s - 1)}, classification{read: true}},
		{"found waiting, and the other reads take long", evidence{ownerObservation: waiting, live: waits(23*s, 20*s), syncBegun: ago(23 * s)}, classification{state: waitingForDependents}},

		// An owner without a watch is read again after pollInterval, independent of the number of syncs.
		{"before the next poll", evidence{ownerObservation: virtual, live: reads(found, 1, time.Minute)}, classification{state: solid, after: 4 * time.Minute}},
		{"at the next poll", evidence{ownerObservation: virtual, live: reads(found, 1, pollInterval)}, classification{read: true}},
		{"before the next poll, with a deletion event", evidence{ownerObservation: deleted, live: reads(found, 1, time.Minute)}, classification{read: true}},
		{"before the next poll, found waiting", evidence{ownerObservation: virtual, live: waits(time.Minute, time.Minute)}, classification{read: true}},
	} {
		if tt.t.uid = uid(1); tt.name == "the reference has no UID" {
			tt.t.uid = ""
		}
		if tt.t.syncBegun.IsZero() {
			tt.t.syncBegun = now
		}
		fakeapi.Want(t, tt.name, classifyOwner(tt.t, now), tt.want)
	}
}

// Absence takes a named 404 or another UID, read in this sync or the last ten seconds, or a deletion before the removal
// of the kind.
func TestNothingIsAbsentWithoutProof(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 13))
	now := began.Add(time.Hour)
	span := func() time.Duration { return time.Duration(r.IntN(14000)) * time.Millisecond }
	absences := 0
	for range 50_000 {
		says := []readResult{unread, found, missing, unnamed404, refused, unavailable}[r.IntN(6)]
		live := liveRead{result: says}
		if says != unread {
			live.received = now.Add(-span())
			live.sent = live.received.Add(-span() / 2)
		}
		switch says {
		case found:
			live.uid, live.waiting = uid(r.IntN(2)), r.IntN(2) == 0
		case missing:
			live.latestMissing = live.sent.Add(-span() / 3)
			if r.IntN(2) == 0 {
				live.previousMissing = live.latestMissing.Add(-2*time.Second - span()/3)
			}
		case unnamed404, refused, unavailable:
			live.failures = 1 + r.IntN(3)
		}
		tm := evidence{
			ownerObservation: ownerObservation{status: refStatus(r.IntN(5)), refSeen: now.Add(-3 * span())}, uid: uid(1), syncBegun: now.Add(-span()), live: live, discovered: now.Add(-span()),
			problem: []problem{fine, fine, fine, unparsableVersion, outOfScope, undiscovered, unknownKind, unservedVersion, ambiguousKind}[r.IntN(9)],
		}
		if r.IntN(2) == 0 {
			tm.deletedAt = now.Add(-span())
		}
		if r.IntN(2) == 0 {
			tm.watchedFor = span()
		} else {
			tm.listingFor = span()
		}
		got := classifyOwner(tm, now)
		recent := (now.Sub(live.received) <= readValidFor || !live.sent.Before(tm.syncBegun)) && !live.sent.Before(tm.refSeen)
		lacking := tm.status != refWaiting && tm.watchedFor >= 2*time.Second && now.Sub(tm.refSeen) >= 2*time.Second
		twice := !live.previousMissing.Before(tm.refSeen) && live.sent.Sub(live.previousMissing) >= 2*time.Second && !live.previousMissing.IsZero()
		other := live.uid != uid(1) && (tm.watchedFor > 0 || !tm.deletedAt.IsZero() || live.sent.Sub(tm.refSeen) >= 2*time.Second)
		proof := says == found && recent && other || says == missing && recent && (!tm.deletedAt.IsZero() || lacking || twice)
		removed := tm.problem == unknownKind && !tm.deletedAt.IsZero() && tm.discovered.After(tm.deletedAt)
		switch {
		case got.state == absent && (tm.status == refValid || !removed && (tm.problem != fine || !proof)):
			t.Fatalf("%+v is absent: %+v", tm, got)
		case got.state == waitingForDependents && !(says == found && recent && live.waiting && live.uid == uid(1) && !live.sent.Before(tm.syncBegun)):
			t.Fatalf("%+v is waiting: %+v", tm, got)
		case got.state == unknown && !got.read && got.after <= 0 && tm.problem == fine:
			t.Fatalf("%+v is unknown, without a recheck: %+v", tm, got)
		case got.after < 0 || got.read && got.state != unknown:
			t.Fatalf("%+v is %+v", tm, got)
		}
		if got.state == absent {
			absences++
		}
	}
	if absences < 1000 {
		t.Errorf("only %d absences: this proves nothing", absences)
	}
}
