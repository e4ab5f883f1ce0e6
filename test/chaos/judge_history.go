package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// recently is the age that the view of a manager may reach while watches are frozen: a silent stream is detected after
// 90 s, and a comparison takes some seconds more.
const recently = 110 * time.Second

// judge looks back at a run.
type judge struct {
	*rig
	audit   controlplane.AuditEvents
	deletes map[string]controlplane.AuditEvents
}

func (r *rig) judgeHistory() {
	events, err := r.cluster.ReadAuditLog()
	if err != nil {
		r.violate("", err.Error())
		return
	}
	j := &judge{rig: r, audit: events.Select(controlplane.Completed, controlplane.Succeeded, controlplane.Writes, func(e *auditv1.Event) bool { return e.ObjectRef != nil })}
	j.deletes = map[string]controlplane.AuditEvents{}
	for _, e := range j.audit.Select(controlplane.ByVerb("delete")) {
		of := e.ObjectRef.Resource + " " + e.ObjectRef.Namespace + "/" + e.ObjectRef.Name
		j.deletes[of] = append(j.deletes[of], e)
	}
	j.judgeWriters()
	j.judgeCounts()
	j.judgeRollouts()
	j.judgeRemovals()
	j.judgeCollections()
	j.judgeMarks()
}

func by(controller string) controlplane.AuditMatch {
	return func(e *auditv1.Event) bool {
		return strings.HasPrefix(e.User.Username, "manager-") && strings.HasSuffix(e.UserAgent, "/"+controller)
	}
}

var leaseKey = types.NamespacedName{Namespace: leaseSpace, Name: leaseName}

// ofManagers returns a copy of the managers' writes, and the managers' names.
func (j *judge) ofManagers() (events controlplane.AuditEvents, managers []string) {
	for _, s := range j.slots {
		managers = append(managers, s.name)
	}
	return j.audit.Select(func(e *auditv1.Event) bool { return slices.Contains(managers, e.User.Username) }), managers
}

// judgeWriters reports writes that a manager sent without the Lease.
func (j *judge) judgeWriters() {
	events, managers := j.ofManagers()
	for i := range events {
		events[i].RequestReceivedTimestamp.Time = j.sent(&events[i])
	}
	breaches, err := controlplane.JudgeLease(events, leaseKey, managers...)
	if err != nil {
		j.violate("", err.Error())
	}
	for _, b := range breaches {
		sent := b.Write.RequestReceivedTimestamp.Time
		switch {
		case j.away.within(b.Last.Answered, sent) > 0: // the audit log lacks requests without a response
		case j.undelivered(b.Write.User.Username, sent):
		default:
			j.violateAt(b.Write.ObjectRef.Namespace+"/"+b.Write.ObjectRef.Name, sent, b.String())
		}
	}
}

func (j *judge) sent(e *auditv1.Event) time.Time {
	received := e.RequestReceivedTimestamp.Time
	s := j.slotOf(e.User.Username)
	path, _, _ := strings.Cut(e.RequestURI, "?")
	sent := received
	for _, q := range s.journal() {
		if q.Path == path && q.Verb == e.Verb && q.Forwarded && q.Time.Before(received) && received.Sub(q.Time) < 10*time.Second && q.Time.Before(sent) {
			sent = q.Time
		}
	}
	return sent
}

func (j *judge) slotOf(user string) *slot {
	for _, s := range j.slots {
		if s.name == user {
			return s
		}
	}
	return j.slots[0]
}

func (s *slot) journal() []faults.Request {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.requests == nil {
		s.requests = s.proxy.Requests()
	}
	return s.requests
}

// undelivered reports whether a manager was cut off at a time, so that the time of sending is unknown.
func (j *judge) undelivered(user string, at time.Time) bool {
	return slices.ContainsFunc(j.slotOf(user).unreachable, func(s span) bool { return !at.Before(s.from) && at.Before(s.to) })
}

// judgeRemovals: every delete by the other controllers had a reason.
func (j *judge) judgeRemovals() {
	for _, e := range j.audit.Select(controlplane.ByVerb("delete", "deletecollection")) {
		key, at := e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, e.RequestReceivedTimestamp.Time
		switch {
		case by("namespace-controller")(&e):
			if live, ok := j.livingNamespace(e.ObjectRef.Namespace, at); ok {
				j.violateAt(e.ObjectRef.Namespace, at, fmt.Sprintf("%s of %s in namespace %s (uid %s), which was not being deleted", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, live.UID))
			}
		case e.ObjectRef.Resource != "pods" || e.Verb != "delete":
		case by("taint-eviction-controller")(&e):
			if pod, ok := j.podAt(key, at); ok && pod.Spec.NodeName != "" && !j.nodeHad(pod.Spec.NodeName, at, isNoExecute) {
				j.violateAt(key, at, fmt.Sprintf("pod evicted from %s, which had no NoExecute taint in the 20 s before", pod.Spec.NodeName))
			}
		case by("pod-garbage-collector-controller")(&e):
			pod, ok := j.podAt(key, at)
			if ok && active(pod) && pod.Spec.NodeName != "" && j.nodeStood(pod.Spec.NodeName, at) {
				j.violateAt(key, at, fmt.Sprintf("pod collected from %s, which had been there for 20 s", pod.Spec.NodeName))
			}
		}
	}
}

func (j *judge) livingNamespace(name string, at time.Time) (*corev1.Namespace, bool) {
	var last *change
	for _, c := range j.histories.namespaces.of(name) {
		if c.at.After(at.Add(-500 * time.Millisecond)) {
			if c.at.Before(at.Add(500*time.Millisecond)) && c.object.GetDeletionTimestamp() != nil {
				return nil, false
			}
			continue
		}
		last = &c
	}
	if last == nil || last.deleted || last.object.GetDeletionTimestamp() != nil {
		return nil, false
	}
	return last.object.(*corev1.Namespace), true
}

func (j *judge) podAt(key string, at time.Time) (*corev1.Pod, bool) {
	var last *corev1.Pod
	for _, c := range j.histories.pods.of(key) {
		if c.at.After(at) && last != nil {
			break
		}
		if !c.deleted {
			last = c.object.(*corev1.Pod)
		}
	}
	return last, last != nil
}
