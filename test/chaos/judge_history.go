package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// recently is how old a manager's view may be while its watches stand still: a stream that is silent is found out after
// 90 s, and a look costs some more.
const recently = 110 * time.Second

// judge looks back at a run.
type judge struct {
	*rig
	audit controlplane.AuditEvents // answered writes that succeeded
}

// judgeHistory checks what must have held all along.
func (r *rig) judgeHistory() {
	events, err := r.cluster.ReadAuditLog()
	if err != nil {
		r.violate("", err.Error())
		return
	}
	j := &judge{rig: r, audit: events.Where(controlplane.Completed, controlplane.Writes, func(e *auditv1.Event) bool {
		return e.ResponseStatus != nil && e.ResponseStatus.Code < 300 && e.ObjectRef != nil
	})}
	j.judgeWriters()
	j.judgeCounts()
	j.judgeRemovals()
	j.judgeMarks()
}

// by accepts what one controller of the managers did.
func by(controller string) controlplane.AuditMatch {
	return func(e *auditv1.Event) bool {
		return strings.HasPrefix(e.User.Username, "manager-") && strings.HasSuffix(e.UserAgent, "/"+controller)
	}
}

// taking is a write to the Lease.
type taking struct {
	user, holder string
	at           time.Time // of the answer
	meddled      bool      // the user of the cluster had a hand in it shortly before
}

func (j *judge) takings() []taking {
	var all []taking
	var meddled time.Time
	for _, e := range j.audit.Where(controlplane.ByResource("leases"), controlplane.ByNamespace(leaseSpace)) {
		if !strings.HasPrefix(e.User.Username, "manager-") {
			meddled = e.StageTimestamp.Time
			continue
		}
		var lease coordinationv1.Lease
		if e.RequestObject == nil || json.Unmarshal(e.RequestObject.Raw, &lease) != nil || lease.Name != leaseName {
			continue
		}
		t := taking{user: e.User.Username, at: e.StageTimestamp.Time, meddled: e.StageTimestamp.Sub(meddled) < 5*time.Second}
		if lease.Spec.HolderIdentity != nil {
			t.holder = *lease.Spec.HolderIdentity
		}
		all = append(all, t)
	}
	return all
}

// exempt are the writes that pass no fence.
var exempt = []string{"leases", "events", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"}

// judgeWriters: a write that was sent after another manager's taking of the Lease had been answered breaks the promise.
func (j *judge) judgeWriters() {
	takings := j.takings()
	for _, e := range j.audit {
		if !strings.HasPrefix(e.User.Username, "manager-") || slices.Contains(exempt, e.ObjectRef.Resource) {
			continue
		}
		sent := j.sent(&e)
		var last taking
		for _, t := range takings {
			if !t.at.Before(sent) {
				break
			}
			last = t
		}
		late := sent.Sub(last.at)
		switch {
		case last.user == e.User.Username && last.holder != "":
		case last.meddled && late < 4*time.Second: // it could not know
		case j.away.within(last.at, sent) > 0: // the audit log lacks what was answered by nobody
		case j.undelivered(e.User.Username, sent):
		default:
			j.violateAt(e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, sent, fmt.Sprintf("%s sent %s %s/%s %v after %s (holder %q) had written the Lease",
				e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name, late, last.user, last.holder))
		}
	}
}

// sent is when a write reached the proxy of its manager, which may have held it for long.
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

// journal is what the proxy saw, read once.
func (s *slot) journal() []faults.Request {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.requests == nil {
		s.requests = s.proxy.Requests()
	}
	return s.requests
}

// undelivered tells whether a manager was cut off, so that nobody knows when it sent what arrived afterwards.
func (j *judge) undelivered(user string, at time.Time) bool {
	return slices.ContainsFunc(j.slotOf(user).unreachable, func(s span) bool { return !at.Before(s.from) && at.Before(s.to) })
}

// tally is the state of one ReplicaSet while the history is played.
type tally struct {
	specs  []appsv1.ReplicaSet
	at     []time.Time
	active map[types.UID]bool
}

// wanted are the least and the most replicas asked for at any time since.
func (t *tally) wanted(since time.Time) (least, most int) {
	least, most = 1<<30, 0
	for i := range t.specs {
		if i+1 < len(t.at) && t.at[i+1].Before(since) {
			continue
		}
		n := int(*t.specs[i].Spec.Replicas)
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// judgeCounts plays the history of the pods: a create must not make one too many, a delete by the ReplicaSet controller not one too few.
func (j *judge) judgeCounts() {
	tallies := j.tallies()
	deletes := map[string]time.Time{}
	for _, e := range j.audit.Where(by("replicaset-controller"), controlplane.ByResource("pods"), controlplane.ByVerb("delete")) {
		deletes[e.ObjectRef.Namespace+"/"+e.ObjectRef.Name] = e.RequestReceivedTimestamp.Time
		if strings.HasPrefix(e.ObjectRef.Name, "foreign-") {
			j.violateAt(e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, e.StageTimestamp.Time, "pod of another controller deleted by "+e.User.Username)
		}
	}
	owners := map[types.UID]types.UID{} // pod → ReplicaSet it counts for
	known := map[types.UID]bool{}
	names := map[string]bool{}
	for _, c := range j.histories.pods.all() {
		pod := c.object.(*corev1.Pod)
		counts := active(pod) && !c.deleted
		was := owners[pod.UID]
		var now types.UID
		if ref := setOf(pod); ref != nil && counts {
			now = ref.UID
		}
		if t := tallies[was]; t != nil && was != now {
			if at, ok := deletes[keyOf(pod)]; ok && (pod.DeletionTimestamp != nil || c.deleted) && c.at.Sub(at).Abs() < 10*time.Second {
				j.judgeDelete(t, pod, c)
			}
			delete(t.active, pod.UID)
		}
		if t := tallies[now]; t != nil && was != now {
			t.active[pod.UID] = true
			// A create that comes late, after its repetition has made the pod and the pod is gone again, nobody can tell from a new one.
			if !known[pod.UID] && !c.missed && !names[keyOf(pod)] {
				j.judgeCreate(t, pod, c)
			}
		}
		owners[pod.UID] = now
		known[pod.UID], names[keyOf(pod)] = true, true
	}
}

func (j *judge) tallies() map[types.UID]*tally {
	tallies := map[types.UID]*tally{}
	for _, c := range j.histories.replicaSets.all() {
		rs := c.object.(*appsv1.ReplicaSet)
		t := tallies[rs.UID]
		if t == nil {
			t = &tally{active: map[types.UID]bool{}}
			tallies[rs.UID] = t
		}
		if n := len(t.specs); n == 0 || *t.specs[n-1].Spec.Replicas != *rs.Spec.Replicas {
			t.specs, t.at = append(t.specs, *rs), append(t.at, c.at)
		}
	}
	return tallies
}

func (j *judge) judgeCreate(t *tally, pod *corev1.Pod, c change) {
	_, most := t.wanted(c.at.Add(-recently))
	if len(t.active) <= most || pod.Namespace != steady && j.gifts(pod, c.at) || j.overtaken(pod, c.at) {
		return
	}
	j.violateAt(pod.Namespace+"/"+setOf(pod).Name, c.at, fmt.Sprintf("pod %s created (version %d): %d active pods, at most %d were ever asked for since %v before",
		pod.Name, c.version, len(t.active), most, recently))
}

// overtaken tells whether a create may have lain in the network while another manager took the Lease. Nothing its sender does can call
// it back, and its successor cannot know of it.
func (j *judge) overtaken(pod *corev1.Pod, at time.Time) bool {
	takings := j.takings()
	for _, s := range j.slots {
		for _, q := range s.journal() {
			if q.Fault != "late commit" || q.Verb != "create" || q.Namespace != pod.Namespace || q.Time.After(at) || at.Sub(q.Time) > 10*time.Second {
				continue
			}
			if slices.ContainsFunc(takings, func(t taking) bool { return t.user != s.name && t.at.After(q.Time) && t.at.Before(at) }) {
				return true
			}
		}
	}
	return false
}

// judgeDelete is asked before the pod is taken off.
func (j *judge) judgeDelete(t *tally, pod *corev1.Pod, c change) {
	least, _ := t.wanted(c.at.Add(-recently))
	if len(t.active) > least || pod.Namespace != steady && j.gifts(pod, c.at) {
		return
	}
	j.violateAt(pod.Namespace+"/"+setOf(pod).Name, c.at, fmt.Sprintf("pod %s deleted by the ReplicaSet controller (version %d) when there were %d active pods and %d asked for",
		pod.Name, c.version, len(t.active), least))
}

// gifts tells whether the user gave pods to, or took them from, the ReplicaSet lately.
func (j *judge) gifts(pod *corev1.Pod, at time.Time) bool {
	of := pod.Namespace + "/" + setOf(pod).Name
	return slices.ContainsFunc(j.diary, func(e entry) bool {
		return e.of == of && (strings.HasPrefix(e.text, "pod ") || strings.HasPrefix(e.text, "deleted")) && e.at.Before(at.Add(time.Second)) && at.Sub(e.at) < recently
	})
}

// judgeRemovals: every delete by the other controllers had a reason.
func (j *judge) judgeRemovals() {
	for _, e := range j.audit.Where(controlplane.ByVerb("delete", "deletecollection")) {
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

// livingNamespace is the namespace of that name at a moment, if it lived then and a while before and after.
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

// podAt is the pod as it was a moment before it was deleted.
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

func isNoExecute(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
}

// nodeHad tells whether a node was as said, or gone, at any time in the 20 s before.
func (j *judge) nodeHad(name string, at time.Time, had func(*corev1.Node) bool) bool {
	changes := j.histories.nodes.of(name)
	for i, c := range changes {
		over := i+1 < len(changes) && changes[i+1].at.Before(at.Add(-20*time.Second))
		if !over && c.at.Before(at.Add(time.Second)) && (c.deleted || had(c.object.(*corev1.Node))) {
			return true
		}
	}
	return len(changes) == 0
}

// nodeStood tells whether a node existed, in service, for the 20 s before.
func (j *judge) nodeStood(name string, at time.Time) bool {
	changes := j.histories.nodes.of(name)
	if len(changes) == 0 || changes[0].at.After(at.Add(-20*time.Second)) {
		return false
	}
	return !j.nodeHad(name, at, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	})
}

// unreachable tells whether a node is marked so, by its condition or by a taint.
func unreachable(n *corev1.Node) bool {
	return nodeReady(n) == corev1.ConditionUnknown || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnreachable
	})
}

// judgeMarks: no node is marked unreachable whose kubelet renewed its lease in time.
func (j *judge) judgeMarks() {
	for _, k := range j.kubelets {
		marked := false
		for _, c := range j.histories.nodes.of(k.name) {
			n := c.object.(*corev1.Node)
			if unreachable(n) && !marked && !c.deleted {
				j.judgeMark(k, n, c)
			}
			marked = unreachable(n) && !c.deleted
		}
	}
	for _, e := range j.audit.Where(by("node-lifecycle-controller"), controlplane.ByResource("pods/status")) {
		key, at := e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, e.RequestReceivedTimestamp.Time
		if pod, ok := j.podAt(key, at); ok && pod.Spec.NodeName != "" && !j.nodeHad(pod.Spec.NodeName, at, func(n *corev1.Node) bool {
			return nodeReady(n) != corev1.ConditionTrue
		}) {
			j.violateAt(key, at, fmt.Sprintf("pod marked not ready on %s, which had been Ready for 20 s", pod.Spec.NodeName))
		}
	}
}

func (j *judge) judgeMark(k *kubelet, n *corev1.Node, c change) {
	sign, told := k.silentBefore(c.at)
	if told || sign.IsZero() {
		return
	}
	silent := c.at.Sub(sign) - j.away.within(sign, c.at)
	if silent < nodeGrace-time.Second {
		j.violateAt(k.name, c.at, fmt.Sprintf("node marked unreachable (version %d) %v after its last sign of life", c.version, silent.Round(time.Millisecond)))
	}
}
