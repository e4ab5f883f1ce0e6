package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	// viewAge is the age that the view of a manager may reach while watches are frozen: a silent stream is detected
	// after 90 s, and a comparison takes some seconds more.
	viewAge = 110 * time.Second
	// nodeViewAge is the same for a node, whose watches are not always frozen.
	nodeViewAge = 20 * time.Second
	// collectorAgent is the end of the garbage collector's user agent.
	collectorAgent = "generic-garbage-collector"
)

// judge looks back at a run. audit holds the successful writes.
type judge struct {
	*rig
	audit   controlplane.AuditEvents
	deletes map[string]controlplane.AuditEvents // by resource and key
}

func (r *rig) judgeHistory() {
	events := must.Get(r.cluster.ReadAuditLog(controlplane.Completed, controlplane.Succeeded, controlplane.Writes))
	j := &judge{rig: r, deletes: map[string]controlplane.AuditEvents{}}
	j.audit = events.Select(func(e *auditv1.Event) bool { return e.ObjectRef != nil })
	for _, e := range j.audit.Select(controlplane.ByVerb("delete")) {
		of := e.ObjectRef.Resource + " " + refKey(&e)
		j.deletes[of] = append(j.deletes[of], e)
	}
	j.judgeWriters()
	j.judgeCounts()
	j.judgeRollouts()
	j.judgeRemovals()
	j.judgeCollections()
	j.judgeMarks()
}

func refKey(e *auditv1.Event) string { return e.ObjectRef.Namespace + "/" + e.ObjectRef.Name }

func byController(name string) controlplane.AuditMatch {
	return func(e *auditv1.Event) bool {
		return strings.HasPrefix(e.User.Username, "manager-") && strings.HasSuffix(e.UserAgent, "/"+name)
	}
}

// judgeWriters reports writes that a manager sent without the Lease.
func (j *judge) judgeWriters() {
	slots := map[string]*slot{}
	var managers []string
	for _, s := range j.slots {
		slots[s.name], managers = s, append(managers, s.name)
	}
	events := j.audit.Select(func(e *auditv1.Event) bool { return slots[e.User.Username] != nil })
	for i := range events {
		events[i].RequestReceivedTimestamp.Time = slots[events[i].User.Username].timeSent(&events[i])
	}
	for _, b := range must.Get(controlplane.JudgeLease(events, types.NamespacedName(leaseKey), managers...)) {
		sent := b.Write.RequestReceivedTimestamp.Time
		// The audit log lacks requests without a response.
		if j.away.within(b.Last.Answered, sent) == 0 && !slots[b.Write.User.Username].wasUnreachable(sent) {
			j.violateAt(refKey(&b.Write), sent, b.String())
		}
	}
}

// timeSent returns the time at which the proxy forwarded the request.
func (s *slot) timeSent(e *auditv1.Event) time.Time {
	received := e.RequestReceivedTimestamp.Time
	path, _, _ := strings.Cut(e.RequestURI, "?")
	sent := received
	for _, q := range s.readJournal() {
		if q.Path == path && q.Verb == e.Verb && q.Forwarded && q.Time.Before(received) && received.Sub(q.Time) < 10*time.Second && q.Time.Before(sent) {
			sent = q.Time
		}
	}
	return sent
}

// wasUnreachable reports whether the manager was cut off at a time, so that the time of sending is unknown.
func (s *slot) wasUnreachable(at time.Time) bool {
	return slices.ContainsFunc(s.unreachable, func(s span) bool { return !at.Before(s.from) && at.Before(s.to) })
}

// wantedReplicas holds the values of spec.replicas over time.
type wantedReplicas struct {
	values []int
	at     []time.Time
}

func (w *wantedReplicas) add(replicas int32, at time.Time) {
	if n := len(w.values); n == 0 || w.values[n-1] != int(replicas) {
		w.values, w.at = append(w.values, int(replicas)), append(w.at, at)
	}
}

// bounds returns the least and the largest value that a manager may have seen last at a time.
func (w *wantedReplicas) bounds(at time.Time) (least, most int) {
	i := 0
	for i+1 < len(w.at) && w.at[i+1].Before(at.Add(-viewAge)) {
		i++
	}
	return slices.Min(w.values[i:]), slices.Max(w.values[i:])
}

// setHistory is a ReplicaSet with the active pods.
type setHistory struct {
	wantedReplicas
	active map[types.UID]bool
}

// judgeCounts replays the history of the pods: a create must not make an excess pod, and a delete by the ReplicaSet
// controller must not leave too few.
func (j *judge) judgeCounts() {
	sets := map[types.UID]*setHistory{}
	for _, c := range j.histories.replicaSets.allChanges() {
		rs := c.object.(*appsv1.ReplicaSet)
		if sets[rs.UID] == nil {
			sets[rs.UID] = &setHistory{active: map[types.UID]bool{}}
		}
		sets[rs.UID].add(*rs.Spec.Replicas, c.at)
	}
	deletes := map[string][]time.Time{} // without a change so far
	for _, e := range j.audit.Select(byController("replicaset-controller"), controlplane.ByResource("pods"), controlplane.ByVerb("delete")) {
		deletes[refKey(&e)] = append(deletes[refKey(&e)], e.RequestReceivedTimestamp.Time)
		if strings.HasPrefix(e.ObjectRef.Name, "foreign-") {
			j.violateAt(refKey(&e), e.StageTimestamp.Time, "pod of another controller deleted by "+e.User.Username)
		}
	}
	owners := map[types.UID]types.UID{}
	known, names := map[types.UID]bool{}, map[string]bool{}
	for _, c := range j.histories.pods.allChanges() {
		pod := c.object.(*corev1.Pod)
		was, now := owners[pod.UID], types.UID("")
		ref, key := controllerSet(pod), ""
		if ref != nil {
			key = pod.Namespace + "/" + ref.Name
			if isActive(pod) && !c.deleted {
				now = ref.UID
			}
		}
		if s := sets[was]; s != nil && was != now {
			least, _ := s.bounds(c.at)
			if (pod.DeletionTimestamp != nil || c.deleted) && takeDelete(deletes, keyOf(pod), c.at) && len(s.active) <= least && !j.hadGifts(pod, key, c.at) {
				j.violateAt(key, c.at, fmt.Sprintf("pod %s deleted by the ReplicaSet controller (version %d): %d active pods, at least %d wanted within %v before",
					pod.Name, c.version, len(s.active), least, viewAge))
			}
			delete(s.active, pod.UID)
		}
		if s := sets[now]; s != nil && was != now {
			s.active[pod.UID] = true
			_, most := s.bounds(c.at)
			if !known[pod.UID] && !c.missed && !(names[keyOf(pod)] && j.mayBeLate(c.at)) && len(s.active) > most && !j.hadGifts(pod, key, c.at) {
				j.violateAt(key, c.at, fmt.Sprintf("pod %s created (version %d): %d active pods, at most %d wanted within %v before",
					pod.Name, c.version, len(s.active), most, viewAge))
			}
		}
		owners[pod.UID] = now
		known[pod.UID], names[keyOf(pod)] = true, true
	}
}

// controllerSet returns the reference to the pod's ReplicaSet, or nil.
func controllerSet(pod *corev1.Pod) *metav1.OwnerReference {
	if ref := metav1.GetControllerOf(pod); ref != nil && ref.Kind == "ReplicaSet" {
		return ref
	}
	return nil
}

// takeDelete reports whether a change is the effect of a delete, and removes the delete: a later pod may have the same
// name.
func takeDelete(deletes map[string][]time.Time, key string, seen time.Time) bool {
	i := slices.IndexFunc(deletes[key], func(at time.Time) bool { return at.Before(seen) && seen.Sub(at) < 10*time.Second })
	if i < 0 {
		return false
	}
	deletes[key] = slices.Delete(deletes[key], i, i+1)
	return true
}

// mayBeLate reports whether a create that was held while a manager was cut off may have arrived just then. The API
// server cannot distinguish the create from a new create if the pod of the repetition is gone.
func (j *judge) mayBeLate(at time.Time) bool {
	return slices.ContainsFunc(j.slots, func(s *slot) bool { return s.wasUnreachable(at) })
}

// hadGifts reports whether the user recently gave pods to the ReplicaSet or took pods away.
func (j *judge) hadGifts(pod *corev1.Pod, set string, at time.Time) bool {
	return pod.Namespace != steady && slices.ContainsFunc(j.diary, func(e entry) bool {
		return e.of == set && (strings.HasPrefix(e.text, "pod ") || strings.HasPrefix(e.text, "deleted")) &&
			e.at.Before(at.Add(time.Second)) && at.Sub(e.at) < viewAge
	})
}

// rollout is a Deployment with the sizes and templates of the ReplicaSets.
type rollout struct {
	wantedReplicas
	key       string
	sizes     map[types.UID]int
	templates map[types.UID]*corev1.PodTemplateSpec
	available map[types.UID]bool // pods
}

// judgeRollouts replays the history of Deployments, ReplicaSets and pods in the order of versions. No raise may exceed
// replicas and surge, no template may get two ReplicaSets, and no removed pod may leave fewer available pods than
// promised.
func (j *judge) judgeRollouts() {
	rollouts := map[types.UID]*rollout{} // by Deployment and by ReplicaSet
	all := slices.Concat(j.histories.deployments.allChanges(), j.histories.replicaSets.allChanges(), j.histories.pods.allChanges())
	slices.SortStableFunc(all, func(a, b change) int { return int(a.version - b.version) })
	for _, c := range all {
		if c.object.GetNamespace() != rolling {
			continue
		}
		switch o := c.object.(type) {
		case *appsv1.Deployment:
			if rollouts[o.UID] == nil {
				rollouts[o.UID] = &rollout{key: keyOf(o), sizes: map[types.UID]int{},
					templates: map[types.UID]*corev1.PodTemplateSpec{}, available: map[types.UID]bool{}}
			}
			rollouts[o.UID].add(*o.Spec.Replicas, c.at)
		case *appsv1.ReplicaSet:
			if ref := metav1.GetControllerOf(o); ref != nil && rollouts[ref.UID] != nil {
				rollouts[o.UID] = rollouts[ref.UID]
				j.judgeSize(rollouts[ref.UID], o, c)
			}
		case *corev1.Pod:
			if ref := controllerSet(o); ref != nil && rollouts[ref.UID] != nil {
				j.judgeAvailable(rollouts[ref.UID], o, c)
			}
		}
	}
}

func (j *judge) judgeSize(r *rollout, rs *appsv1.ReplicaSet, c change) {
	if c.deleted {
		delete(r.sizes, rs.UID)
		delete(r.templates, rs.UID)
		return
	}
	before, known := r.sizes[rs.UID]
	r.sizes[rs.UID] = int(*rs.Spec.Replicas)
	sum := 0
	for _, size := range r.sizes {
		sum += size
	}
	if _, most := r.bounds(c.at); r.sizes[rs.UID] > before && sum > most+rollingSurge {
		j.violateAt(r.key, c.at, fmt.Sprintf("ReplicaSet %s was raised to %d (version %d): sizes add up to %d, at most %d replicas were wanted within %v before",
			rs.Name, *rs.Spec.Replicas, c.version, sum, most, viewAge))
	}
	if known {
		return
	}
	template := templateWithoutHash(rs)
	for _, other := range r.templates {
		if equality.Semantic.DeepEqual(other, template) {
			j.violateAt(r.key, c.at, fmt.Sprintf("ReplicaSet %s (version %d) has the template of another ReplicaSet", rs.Name, c.version))
		}
	}
	r.templates[rs.UID] = template
}

func templateWithoutHash(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec {
	template := rs.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return template
}

func (j *judge) judgeAvailable(r *rollout, pod *corev1.Pod, c change) {
	if !c.deleted && isActive(pod) && kubelet.IsReady(pod) {
		r.available[pod.UID] = true
		return
	}
	was := r.available[pod.UID]
	delete(r.available, pod.UID)
	if least, _ := r.bounds(c.at); was && len(r.available) < least-rollingUnavailable {
		j.violateAt(r.key, c.at, fmt.Sprintf("pod %s was taken (version %d): %d are available, at least %d replicas were wanted within %v before",
			pod.Name, c.version, len(r.available), least, viewAge))
	}
}

// judgeRemovals: every delete by the other controllers had a reason.
func (j *judge) judgeRemovals() {
	for _, e := range j.audit.Select(controlplane.ByVerb("delete", "deletecollection")) {
		key, at := refKey(&e), e.RequestReceivedTimestamp.Time
		if byController("namespace-controller")(&e) {
			if live := j.livingNamespace(e.ObjectRef.Namespace, at); live != nil {
				j.violateAt(live.Name, at, fmt.Sprintf("%s of %s in namespace %s (uid %s), which was not being deleted",
					e.Verb, e.ObjectRef.Resource, live.Name, live.UID))
			}
			continue
		}
		pod := j.podAt(key, at)
		if e.ObjectRef.Resource != "pods" || e.Verb != "delete" || pod == nil || pod.Spec.NodeName == "" {
			continue
		}
		switch node := pod.Spec.NodeName; {
		case byController("taint-eviction-controller")(&e) && !j.nodeHad(node, at, hasNoExecute):
			j.violateAt(key, at, fmt.Sprintf("pod evicted from %s, which had no NoExecute taint in the %v before", node, nodeViewAge))
		case byController("pod-garbage-collector-controller")(&e) && isActive(pod) && j.nodeStood(node, at):
			j.violateAt(key, at, fmt.Sprintf("pod collected from %s, which had been there for %v", node, nodeViewAge))
		}
	}
}

// livingNamespace returns the namespace if it was not being deleted at a time.
func (j *judge) livingNamespace(name string, at time.Time) *corev1.Namespace {
	var last *change
	for _, c := range j.histories.namespaces.changesOf(name) {
		if c.at.After(at.Add(-500 * time.Millisecond)) {
			if c.at.Before(at.Add(500*time.Millisecond)) && c.object.GetDeletionTimestamp() != nil {
				return nil
			}
			continue
		}
		last = &c
	}
	if last == nil || last.deleted || last.object.GetDeletionTimestamp() != nil {
		return nil
	}
	return last.object.(*corev1.Namespace)
}

func (j *judge) podAt(key string, at time.Time) (last *corev1.Pod) {
	for _, c := range j.histories.pods.changesOf(key) {
		if c.at.After(at) && last != nil {
			break
		}
		if !c.deleted {
			last = c.object.(*corev1.Pod)
		}
	}
	return last
}

func hasNoExecute(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
}

func hasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// nodeHad reports whether had was true, or the node was gone, at any time within nodeViewAge before a time.
func (j *judge) nodeHad(name string, at time.Time, had func(*corev1.Node) bool) bool {
	changes := j.histories.nodes.changesOf(name)
	for i, c := range changes {
		over := i+1 < len(changes) && changes[i+1].at.Before(at.Add(-nodeViewAge))
		if !over && c.at.Before(at.Add(time.Second)) && (c.deleted || had(c.object.(*corev1.Node))) {
			return true
		}
	}
	return len(changes) == 0
}

func (j *judge) nodeStood(name string, at time.Time) bool {
	changes := j.histories.nodes.changesOf(name)
	return len(changes) > 0 && !changes[0].at.After(at.Add(-nodeViewAge)) &&
		!j.nodeHad(name, at, func(n *corev1.Node) bool { return hasTaint(n, corev1.TaintNodeOutOfService) })
}

// judgeMarks: no node and no pod is marked while the node's kubelet renews the Lease.
func (j *judge) judgeMarks() {
	for _, k := range j.kubelets {
		marked := false
		for _, c := range j.histories.nodes.changesOf(k.name) {
			n := c.object.(*corev1.Node)
			is := !c.deleted && (controlplane.NodeReady(n) == corev1.ConditionUnknown || hasTaint(n, corev1.TaintNodeUnreachable))
			sign, silenced := k.lastSign(c.at)
			silent := c.at.Sub(sign) - j.away.within(sign, c.at)
			if is && !marked && !silenced && !sign.IsZero() && silent < nodeGrace-time.Second {
				j.violateAt(k.name, c.at, fmt.Sprintf("node marked unreachable (version %d) %v after the last renewal", c.version, silent.Round(time.Millisecond)))
			}
			marked = is
		}
	}
	for _, e := range j.audit.Select(byController("node-lifecycle-controller"), controlplane.ByResource("pods/status")) {
		key, at := refKey(&e), e.RequestReceivedTimestamp.Time
		if pod := j.podAt(key, at); pod != nil && pod.Spec.NodeName != "" && !j.nodeHad(pod.Spec.NodeName, at, func(n *corev1.Node) bool {
			return controlplane.NodeReady(n) != corev1.ConditionTrue
		}) {
			j.violateAt(key, at, fmt.Sprintf("pod marked not ready on %s, which had been Ready for %v", pod.Spec.NodeName, nodeViewAge))
		}
	}
}

// judgeCollections checks that the garbage collector deletes no object with a live owner and no orphan.
func (j *judge) judgeCollections() {
	owners := changesByUID(j.histories.replicaSets, j.histories.deployments)
	for _, h := range []*history{j.histories.pods, j.histories.replicaSets} {
		for _, changes := range changesByUID(h) {
			n := slices.IndexFunc(changes, func(c change) bool { return c.deleted || c.object.GetDeletionTimestamp() != nil })
			if n < 1 || changes[n].missed || !j.wasCollected(h.resource, changes[n]) {
				continue
			}
			// The API server has compared versions, so the decision was made on the references of the state before.
			if text := wronglyCollected(changes[n-1].object.GetOwnerReferences(), owners, changes[0].version, changes[n].version); text != "" {
				key := keyOf(changes[n].object)
				j.violateAt(key, changes[n].at, fmt.Sprintf("%s %s was deleted by the garbage collector (version %d): %s", h.resource, key, changes[n].version, text))
			}
		}
	}
}

func changesByUID(histories ...*history) map[types.UID][]change {
	all := map[types.UID][]change{}
	for _, h := range histories {
		for _, c := range h.allChanges() {
			all[c.object.GetUID()] = append(all[c.object.GetUID()], c)
		}
	}
	return all
}

// wasCollected reports whether the first delete that fits the change came from the garbage collector.
func (j *judge) wasCollected(resource string, c change) bool {
	var first *auditv1.Event
	for _, e := range j.deletes[resource+" "+keyOf(c.object)] {
		received := e.RequestReceivedTimestamp.Time
		if received.Before(c.at.Add(-longestWrite)) || received.After(c.at.Add(time.Second)) {
			continue
		}
		if first == nil || e.StageTimestamp.Time.Before(first.StageTimestamp.Time) {
			first = &e
		}
	}
	return first != nil && byController(collectorAgent)(first)
}

// wronglyCollected returns the reason for which an object, created and collected at two versions, had to be kept.
// An object whose creation was in flight until its owner was gone is no orphan.
func wronglyCollected(refs []metav1.OwnerReference, owners map[types.UID][]change, created, collected int64) string {
	for _, ref := range refs {
		var last, before *change
		for _, c := range owners[ref.UID] {
			if c.version >= collected {
				break
			}
			if !c.deleted {
				before = &c
			}
			last = &c
		}
		switch {
		case last == nil:
		case !last.deleted && !awaitsDependents(last.object):
			return fmt.Sprintf("its owner %s %s lived", ref.Kind, ref.Name)
		case last.deleted && created < last.version && before != nil && slices.Contains(before.object.GetFinalizers(), metav1.FinalizerOrphanDependents):
			return fmt.Sprintf("its owner %s %s was deleted with orphaning (version %d, dependent created at %d)", ref.Kind, ref.Name, last.version, created)
		}
	}
	return ""
}

func awaitsDependents(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}
