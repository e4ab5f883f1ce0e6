package deployment

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The model visits all states of a Deployment and up to three ReplicaSets, for any order of actions of the
// Deployment controller, the ReplicaSet controller, kubelets and users. Plans are those of the real code.
// ReplicaSet controllers see sizes late, count deleted pods for a while, and write statuses late. Pods become
// ready, then available. Any ready pod may be deleted first. A sync may be interrupted after any write.
//
// The pod cache shows the true counts, or helps as little as possible. A cache that lags shows no available pods of
// some ReplicaSets. With failures, reductions are rejected, changes back off, and creates have an unknown outcome.
//
// After an outage no pod is ready. Old pods recover, and the statuses show that late, or never recover.
//
// With minReadySeconds, a pod that becomes ready after the plan may cost an available one. There the cache shows
// ready pods, and no pod becomes ready while its ReplicaSet shrinks.

// modelSet is a ReplicaSet of the model. The index is the template.
type modelSet struct {
	exists      bool
	unknown     int8 // size of a create with an unknown outcome
	first       bool // never resized
	size        int8
	known       int8 // size that the ReplicaSet controller has seen
	fresh       bool // known is the size
	told        bool // the status is about the size
	replicas    int8 // status
	ready       int8 // status
	available   int8 // status
	up          int8 // pods available
	early       int8 // pods ready and not yet available
	down        int8 // pods not ready
	upGone      int8 // deleted pods that its controller still counts
	earlyGone   int8
	downGone    int8
	sizedForOld bool // the annotations have another number of replicas
	doubtful    bool // see set
	failing     bool // condition ReplicaFailure
}

func (m modelSet) active() int8 { return m.up + m.early + m.down }

func (m modelSet) gone() int8 { return m.upGone + m.earlyGone + m.downGone }

func (m modelSet) pods() int8 { return m.active() + m.gone() }

type modelState struct {
	template int8 // of the Deployment
	changes  int8 // of the template that are still to come
	losses   int8 // lost responses to creates
	scaled   bool
	back     bool // it was, and that was taken back
	sets     [3]modelSet
}

// secured returns the available pods that remain after the last written size, and possibly the size before, is
// carried out, whichever ready pods are deleted first.
func (m modelSet) secured() int {
	return int(max(0, m.up-max(0, m.active()-min(m.size, m.known)-m.down)))
}

func (m modelSet) caughtUp() bool { return m.first || m.told && m.replicas <= m.size }

// model holds the constants of a walk.
type model struct {
	strategy           appsv1.DeploymentStrategyType
	replicas           int
	scaleTo            int  // once; 0: never
	takesBack          bool // the scaling is undone
	restarts           bool // ledgers may be lost
	undeletable        bool // deletes of pods are refused
	surge, unavailable int
	minReady           bool // pods are ready for a while before they are available
	sets               int
	lags               bool // the cache of pods may be behind
	fails              bool // reductions may be refused
	patient            bool // no reduction while a ReplicaSet has not acted on the last, however long that takes
	outage             bool // the cache of pods shows what there is, where it does not lag
	dead               bool // pods of old ReplicaSets never get ready
	refuse             held // for good
	plans              map[seenState]*plan
	steps              []step // what can happen in the present state
}

// seenState is the visible part of a state.
type seenState struct {
	modelState
	view view
	held held
}

// held is a bit set of ReplicaSets whose changes back off in a sync.
type held uint8

func (h held) has(set int) bool { return h&(1<<set) != 0 }

// view is the content of the pod cache: a bit for each ReplicaSet without available pods in the cache, while the
// others have as many as their sizes allow; or the true counts.
type view uint8

const (
	showsAll   view = 0
	showsTruth view = 1 << 7
)

func (v view) behind(set int) bool { return v&(1<<set) != 0 }

type step struct {
	act act
	to  modelState
}

// act is an action with its ReplicaSet and a number.
type act struct {
	what   string
	set, n int8
}

func (a act) String() string { return fmt.Sprintf("%s %d (%d)", a.what, a.set, a.n) }

func (m *model) want(s modelState) int {
	if s.scaled {
		return m.scaleTo
	}
	return m.replicas
}

// decide plans a sync for a state and a view of the pod cache.
func (m *model) decide(s modelState, shown view, back held) *plan {
	seen := seenState{s, shown, back}
	seen.changes, seen.losses, seen.back = 0, 0, false
	for i := range seen.sets {
		v := &seen.sets[i]
		if m.strategy == appsv1.RollingUpdateDeploymentStrategyType {
			up, ready := v.up, v.up+v.early
			v.up, v.early, v.down, v.upGone, v.earlyGone, v.downGone = 0, 0, 0, 0, 0, 0
			if shown&showsTruth != 0 {
				v.up = up
			}
			if shown&showsTruth != 0 || m.minReady {
				v.early = ready
			}
		}
		v.known, v.fresh = 0, false
	}
	if p, ok := m.plans[seen]; ok {
		return p
	}
	d := newDeployment(int32(m.want(s)), within(m.surge, m.unavailable))
	d.Spec.Strategy.Type = m.strategy
	var f facts
	var sets []replicaSet
	for i, v := range seen.sets {
		current := int8(i) == s.template
		switch {
		case !v.exists && current:
			f.pendingNew += int(v.unknown)
		case !v.exists:
			f.pendingOld += int(v.unknown)
		}
		if !v.exists {
			continue
		}
		rs := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), CreationTimestamp: ago(time.Duration(10-i) * time.Minute), Generation: 5,
				Annotations: map[string]string{revisionAnnotation: "1"}},
			Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(v.size))},
			Status: appsv1.ReplicaSetStatus{ObservedGeneration: 4, Replicas: int32(v.replicas),
				ReadyReplicas: int32(v.ready), AvailableReplicas: int32(v.available)},
		}
		if v.first {
			rs.Generation, rs.Status.ObservedGeneration = 1, 0
		}
		if m.minReady {
			rs.Spec.MinReadySeconds, d.Spec.MinReadySeconds = 10, 10
		}
		if v.told {
			rs.Status.ObservedGeneration = rs.Generation
		}
		sized := boundsOf(d)
		if v.sizedForOld {
			sized.replicas = m.replicas + m.scaleTo - sized.replicas
		}
		for key, value := range sizeAnnotations(sized) {
			rs.Annotations[key] = value
		}
		counted := podCounts{available: 100, ready: int(v.early)}
		switch {
		case shown.behind(i) && !m.minReady:
			counted = podCounts{}
		case shown.behind(i):
			counted.available = 0
		case shown&showsTruth != 0:
			counted.available = int(v.up)
		}
		if v.failing {
			rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedDelete"}}
		}
		known := replicaSet{rs: rs, current: current, statusUnreliable: v.doubtful, pods: counted}
		if m.patient {
			known.resizedAt = now
		}
		if back.has(i) {
			known.backoff = time.Second
		}
		sets = append(sets, known)
	}
	in := newRolloutInput(d, sets, now)
	in.facts = f
	all := in.makePlan()
	p := &plan{create: all.create, changes: inOrderOfWrites(all.changes), capacity: all.capacity}
	m.plans[seen] = p
	return p
}

// next returns the possible steps of a state. The result is valid until the next call. quiet is true if only users
// can act.
func (m *model) next(s modelState) (steps []step, quiet bool) {
	m.steps = m.steps[:0]
	add := func(what string, i int, v modelSet) {
		if v != s.sets[i] {
			to := s
			to.sets[i] = v
			m.step(what, i, 0, to)
		}
	}
	for i := range m.sets {
		v := s.sets[i]
		if v.unknown > 0 {
			add("create is carried out", i, created(v.unknown))
			add("create is not carried out", i, modelSet{})
		}
		if !v.exists {
			continue
		}
		if !v.fresh && !(v.doubtful && v.gone() > 0) {
			w := v
			w.known, w.fresh = v.size, true
			add("see size", i, w)
		}
		w := v
		switch active := v.active(); {
		case v.gone() > 0:
			w.upGone, w.earlyGone, w.downGone = 0, 0, 0
			add("pods gone", i, w)
		case active < v.known:
			w.down += v.known - active
			add("create pods", i, w)
		case active > v.known && !m.undeletable:
			excess := active - v.known
			w.downGone = min(v.down, excess)
			excess -= w.downGone
			w.down -= w.downGone
			for up := max(0, excess-v.early); up <= min(v.up, excess); up++ {
				w.upGone, w.earlyGone = up, excess-up
				w.up, w.early = v.up-w.upGone, v.early-w.earlyGone
				add("delete pods", i, w)
			}
		}
		w = v
		w.replicas, w.ready, w.available, w.told = v.pods(), v.up+v.early+v.upGone+v.earlyGone, v.up+v.upGone, v.told || v.fresh
		w.doubtful, w.failing = v.doubtful && !w.told, m.undeletable && v.active() > v.known
		add("status", i, w)
		if shrinks := !v.fresh || v.active() > v.known; v.down > 0 && !(m.minReady && shrinks) && !(m.dead && int8(i) != s.template) {
			w = v
			w.down--
			if m.minReady {
				w.early++
			} else {
				w.up++
			}
			add("pod ready", i, w)
		}
		if v.early > 0 {
			w = v
			w.up, w.early = v.up+1, v.early-1
			add("pod available", i, w)
		}
	}
	m.writes(s, showsTruth, m.refuse) // which it does in the end
	quiet = len(m.steps) == 0
	others := showsTruth
	if !m.outage {
		others = showsAll
		m.writes(s, others, m.refuse)
	}
	for behind := view(1); m.lags && behind < 1<<m.sets; behind++ {
		m.writes(s, behind|others, m.refuse)
	}
	for back := held(1); m.fails && back < 1<<m.sets; back++ {
		m.writes(s, showsAll, back)
	}
	m.failures(s)
	if s.changes > 0 {
		to := s
		to.changes--
		to.template = (s.template + 1) % int8(m.sets)
		m.step("change template", int(to.template), 0, to)
	}
	if m.scaleTo > 0 && !s.scaled && !s.back {
		to := s
		to.scaled = true
		for i := range to.sets {
			to.sets[i].sizedForOld = to.sets[i].exists
		}
		m.step("scale", 0, int8(m.scaleTo), to)
	}
	if m.takesBack && s.scaled {
		to := s
		to.scaled, to.back = false, true
		for i, v := range to.sets {
			to.sets[i].sizedForOld = v.exists && !v.sizedForOld
		}
		m.step("scale back", 0, int8(m.replicas), to)
	}
	if m.restarts {
		to := s
		for i, v := range to.sets {
			to.sets[i].doubtful = v.exists && !v.first && !v.told
		}
		m.step("restart", 0, 0, to)
	}
	return m.steps, quiet
}

func (m *model) step(what string, set int, n int8, to modelState) {
	m.steps = append(m.steps, step{act{what, int8(set), n}, to})
}

// writes adds the state after each write of a sync.
func (m *model) writes(s modelState, shown view, back held) {
	p := m.decide(s, shown, back)
	to := s
	if p.create != nil {
		size := int8(*p.create.Spec.Replicas)
		to.sets[s.template] = created(size)
		m.step("write: create", int(s.template), size, to)
	}
	refused := func(c change) bool { return back != 0 && c.rs != p.create && back.has(int(c.rs.Name[0]-'0')) }
	changes := p.changes
	if slices.ContainsFunc(changes, refused) {
		changes = slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return c.isRaise() || refused(c) })
		changes = append(changes, slices.DeleteFunc(p.raisesAfter(changes), refused)...)
	}
	for _, c := range changes {
		if i, changed := to.write(c, p.create); changed {
			m.step("write: size of", i, int8(c.to), to)
		}
	}
}

// failures adds the states after syncs with an unknown outcome of a create, or with rejected reductions.
func (m *model) failures(s modelState) {
	if s.losses == 0 && !m.fails {
		return
	}
	p := m.decide(s, showsAll, 0)
	if p.create != nil && s.losses > 0 && *p.create.Spec.Replicas > 0 {
		to := s
		to.losses--
		to.sets[s.template].unknown = max(s.sets[s.template].unknown, int8(*p.create.Spec.Replicas))
		m.step("unknown outcome: create", int(s.template), int8(*p.create.Spec.Replicas), to)
	}
	reductions := slices.IndexFunc(p.changes, change.isRaise)
	for refused := 1; m.fails && refused < 1<<max(0, reductions); refused++ {
		to := s
		if p.create != nil {
			to.sets[s.template] = created(int8(*p.create.Spec.Replicas))
		}
		var done []change
		for i, c := range p.changes[:reductions] {
			if refused&(1<<i) == 0 {
				to.write(c, p.create)
				done = append(done, c)
			}
		}
		for _, c := range p.raisesAfter(done) {
			to.write(c, p.create)
		}
		m.step("write all but some reductions, by bits", 0, int8(refused), to)
	}
}

func created(size int8) modelSet { return modelSet{exists: true, first: true, size: size} }

// write carries out a change. fresh is the ReplicaSet created in the same sync.
func (s *modelState) write(c change, fresh *appsv1.ReplicaSet) (i int, changed bool) {
	i = int(s.template)
	if c.rs != fresh {
		i = int(c.rs.Name[0] - '0')
	}
	v := &s.sets[i]
	marks := c.annotations[desiredReplicasAnnotation] != "" || c.annotations[maxReplicasAnnotation] != ""
	if c.from == c.to && !(marks && v.sizedForOld) {
		return i, false
	}
	if c.from != c.to {
		v.doubtful = v.doubtful || c.isRaise() && !v.caughtUp()
		v.first, v.fresh, v.told = false, false, false
	}
	v.size, v.sizedForOld = int8(c.to), v.sizedForOld && !marks
	return i, true
}

// walk visits all states and returns a path to the first state that fails the check.
func (m *model) walk(start modelState, check func(from, to modelState, quiet bool) string) (states int, bad string) {
	m.plans = map[seenState]*plan{}
	type origin struct {
		from int
		act  act
	}
	known := []modelState{start}
	origins := []origin{{}}
	seen := map[modelState]struct{}{start: {}}
	path := func(at int, last string) string {
		lines := []string{last}
		for ; at > 0; at = origins[at].from {
			lines = append(lines, origins[at].act.String())
		}
		slices.Reverse(lines)
		return strings.Join(lines, "\n  ")
	}
	for at := 0; at < len(known); at++ {
		s := known[at]
		steps, quiet := m.next(s)
		if quiet {
			if problem := check(s, s, true); problem != "" {
				return len(known), path(at, problem)
			}
		}
		for _, step := range steps {
			if problem := check(s, step.to, false); problem != "" {
				return len(known), path(at, step.act.String()+"\n  "+problem)
			}
			if _, ok := seen[step.to]; !ok {
				seen[step.to] = struct{}{}
				known, origins = append(known, step.to), append(origins, origin{at, step.act})
			}
		}
	}
	return len(known), ""
}

// finished returns a state in which the Deployment has all pods.
func (m *model) finished(changes int8) modelState {
	s := modelState{changes: changes}
	s.sets[0] = running(int8(m.replicas))
	return s
}

// between returns a state in which two old ReplicaSets share the pods.
func (m *model) between(older int8) modelState {
	s := modelState{template: 2}
	s.sets[0], s.sets[1] = running(older), running(int8(m.replicas)-older)
	return s
}

func running(size int8) modelSet {
	return modelSet{exists: true, size: size, known: size, fresh: true, told: true, replicas: size, ready: size, available: size, up: size}
}

// afterOutage returns a state in which all ReplicaSets have lost their pods.
func (m *model) afterOutage(older, old, next int8) modelState {
	s := modelState{template: 2}
	for i, size := range []int8{older, old, next} {
		s.sets[i] = modelSet{exists: true, size: size, known: size, fresh: true, told: true, replicas: size, down: size}
	}
	return s
}

func (m *model) unfinished(s modelState) string {
	kept := 0
	for i, v := range s.sets {
		if m.refuse.has(i) {
			kept += int(v.size)
		}
	}
	for i, v := range s.sets {
		want := int8(0)
		switch {
		case m.refuse.has(i):
			want = v.size
		case int8(i) == s.template:
			want = int8(min(m.want(s), m.want(s)+m.surge-kept))
		}
		up := v.up
		if m.undeletable { // so there may be more
			up = min(up, want)
		}
		if v.size != want || up != want || v.sizedForOld && v.size > 0 {
			return fmt.Sprintf("nothing moves any more: ReplicaSet %d has size %d and %d pods available, want %d", i, v.size, v.up, want)
		}
	}
	return ""
}

func sizesIn(s modelState) (sum int) {
	for _, v := range s.sets {
		sum += int(v.size)
	}
	return sum
}

// TestModelOfRollingUpdates: for any age of statuses, change of templates and interrupted sync, the sizes stay
// within replicas and surge, available pods do not fall below the minimum, and the rollout ends.
func TestModelOfRollingUpdates(t *testing.T) {
	var w walks
	for _, tt := range []struct {
		replicas, surge, unavailable, sets int
		changes                            int8
		minReady, lags, fails, patient     bool
	}{
		{1, 1, 0, 2, 2, false, false, false, false}, {1, 0, 1, 2, 2, false, false, false, false}, {2, 1, 0, 2, 2, false, false, false, false}, {2, 0, 1, 2, 2, false, false, false, false},
		{2, 1, 1, 2, 2, false, false, false, false}, {3, 1, 1, 2, 2, false, false, false, false}, {3, 2, 0, 2, 2, false, false, false, false}, {3, 0, 2, 2, 2, false, false, false, false},
		{2, 1, 0, 2, 2, true, false, false, false}, {2, 1, 1, 2, 2, true, false, false, false}, {3, 1, 0, 2, 1, true, false, false, false}, {3, 2, 1, 2, 1, true, false, false, false}, {3, 1, 1, 2, 2, true, false, false, false},
		{1, 1, 0, 2, 2, false, true, false, false}, {2, 1, 0, 3, 2, false, true, false, false}, {2, 1, 1, 3, 2, false, true, false, false}, {2, 1, 0, 2, 2, true, true, false, false}, {3, 1, 0, 2, 1, true, true, false, false},
		{1, 0, 1, 2, 2, false, false, true, false}, {2, 1, 0, 3, 2, false, false, true, false}, {3, 1, 1, 2, 2, false, false, true, false}, {2, 1, 1, 2, 2, true, false, true, false}, {1, 1, 0, 3, 2, true, false, false, false},
		{3, 1, 1, 2, 2, false, false, false, true}, {2, 1, 0, 3, 2, false, false, false, true}, {2, 1, 1, 2, 2, true, true, false, true}, {3, 1, 1, 2, 1, false, false, true, true},
	} {
		m := &model{strategy: appsv1.RollingUpdateDeploymentStrategyType, replicas: tt.replicas, surge: tt.surge, unavailable: tt.unavailable, sets: tt.sets,
			minReady: tt.minReady, lags: tt.lags, fails: tt.fails, patient: tt.patient}
		start := m.finished(tt.changes)
		if tt.fails {
			start.losses = 1
		}
		w.add(tt, m, start, m.withinBounds)
	}
	for _, tt := range []struct {
		replicas, surge, unavailable int
		older, old, next             int8
		dead, lags                   bool
	}{
		{2, 1, 1, 1, 1, 1, false, false}, {3, 1, 1, 2, 1, 1, false, false}, {3, 1, 1, 1, 2, 1, false, false},
		{2, 1, 1, 1, 1, 1, true, false}, {3, 0, 1, 2, 1, 0, true, false}, {3, 1, 0, 2, 1, 1, true, false},
		{2, 1, 1, 1, 1, 1, false, true}, {3, 1, 0, 2, 1, 1, true, true},
	} {
		m := &model{strategy: appsv1.RollingUpdateDeploymentStrategyType, replicas: tt.replicas, surge: tt.surge, unavailable: tt.unavailable, sets: 3,
			outage: true, dead: tt.dead, lags: tt.lags}
		w.add(tt, m, m.afterOutage(tt.older, tt.old, tt.next), m.withinBounds)
	}
	for _, tt := range []struct {
		replicas, surge, unavailable int
		older                        int8
		refuse                       held // the older, or the old one
	}{
		{3, 1, 0, 2, 1}, {3, 1, 0, 1, 2}, {3, 0, 1, 2, 1}, {3, 1, 1, 1, 1},
	} {
		m := &model{strategy: appsv1.RollingUpdateDeploymentStrategyType, replicas: tt.replicas, surge: tt.surge, unavailable: tt.unavailable, sets: 3,
			refuse: tt.refuse}
		w.add(tt, m, m.between(tt.older), m.withinBounds)
	}
	for _, tt := range []struct {
		replicas, surge, unavailable int
		minReady, undeletable        bool
	}{
		{2, 1, 0, false, false}, {3, 1, 1, false, false}, {2, 1, 1, true, false}, {2, 1, 0, false, true}, {3, 1, 1, false, true}, {3, 0, 1, false, true}, {2, 1, 1, true, true}, {2, 1, 0, true, true}, {3, 1, 1, true, true},
	} {
		m := &model{strategy: appsv1.RollingUpdateDeploymentStrategyType, replicas: tt.replicas, surge: tt.surge, unavailable: tt.unavailable, sets: 2,
			minReady: tt.minReady, restarts: !tt.undeletable, undeletable: tt.undeletable}
		w.add(tt, m, m.finished(2), m.withinBounds)
	}
	w.tell(t)
}

// walks holds the results of walks.
type walks struct {
	states   int
	problems []string
}

func (w *walks) add(what any, m *model, start modelState, check func(from, to modelState, quiet bool) string) {
	n, bad := m.walk(start, check)
	if w.states += n; bad != "" {
		w.problems = append(w.problems, fmt.Sprintf("%+v:\n  %s", what, bad))
	}
}

func (w walks) tell(t *testing.T) {
	for _, problem := range w.problems {
		t.Error(problem)
	}
	t.Logf("%d states", w.states)
}

// withinBounds checks a rolling update with constant replicas.
func (m *model) withinBounds(from, to modelState, quiet bool) string {
	had, told, left, sum := 0, 0, 0, sizesIn(to)
	for i, v := range from.sets {
		had, told, left = had+v.secured(), told+int(min(v.size, v.available)), left+to.sets[i].secured()
	}
	if m.outage && m.lags { // pods that neither statuses nor the pod cache show
		had = min(had, told)
	}
	switch least, most := m.replicas-m.unavailable, m.replicas+m.surge; {
	case quiet:
		return m.unfinished(to)
	case left < least && had >= least:
		return fmt.Sprintf("%d pods available when that is carried out, want %d", left, least)
	case sum > most:
		return fmt.Sprintf("sizes add up to %d, want at most %d", sum, most)
	}
	return ""
}

// TestModelOfScaling: a Deployment that is scaled during a rollout gets the new size, and no write raises the sum
// of sizes above replicas and surge.
func TestModelOfScaling(t *testing.T) {
	var w walks
	for _, strategy := range []appsv1.DeploymentStrategyType{appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType} {
		for _, tt := range []struct{ replicas, scaleTo, surge, unavailable int }{
			{2, 3, 1, 0}, {3, 2, 1, 1}, {3, 1, 0, 1}, {1, 3, 1, 1}, {3, 2, 0, 1},
		} {
			m := &model{strategy: strategy, replicas: tt.replicas, scaleTo: tt.scaleTo, surge: tt.surge, unavailable: tt.unavailable, sets: 2}
			w.add(fmt.Sprintf("%s %+v", strategy, tt), m, m.finished(1), func(from, to modelState, quiet bool) string {
				most := m.want(to) + tt.surge
				switch {
				case quiet && (to.changes == 0 || to.scaled):
					return m.unfinished(to)
				case sizesIn(to) > max(most, sizesIn(from)):
					return fmt.Sprintf("sizes add up to %d, from %d, want at most %d", sizesIn(to), sizesIn(from), most)
				}
				return ""
			})
		}
	}
	w.tell(t)
}

// TestModelOfScalingThatIsTakenBack: also if pods cannot be deleted, the Deployment keeps its pods, and a parallel
// rollout stays within bounds.
func TestModelOfScalingThatIsTakenBack(t *testing.T) {
	var w walks
	for _, strategy := range []appsv1.DeploymentStrategyType{appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType} {
		for _, tt := range []struct {
			replicas, scaleTo, surge, unavailable int
			changes                               int8
			undeletable                           bool
		}{
			{3, 1, 0, 1, 0, true}, {3, 1, 1, 1, 1, true}, {2, 1, 1, 0, 1, true}, {3, 0, 1, 0, 1, true}, {2, 1, 1, 0, 1, false}, {3, 1, 0, 1, 1, false},
		} {
			m := &model{strategy: strategy, replicas: tt.replicas, scaleTo: tt.scaleTo, takesBack: true, surge: tt.surge, unavailable: tt.unavailable, sets: 2, undeletable: tt.undeletable}
			w.add(fmt.Sprintf("%s %+v", strategy, tt), m, m.finished(tt.changes), func(from, to modelState, quiet bool) string {
				switch {
				case quiet && (!to.back || tt.undeletable && strategy == appsv1.RecreateDeploymentStrategyType && to.template == 1):
					return ""
				case quiet:
					return m.unfinished(to)
				case from.back && strategy == appsv1.RollingUpdateDeploymentStrategyType:
					return m.withinBounds(from, to, false)
				}
				return ""
			})
		}
	}
	w.tell(t)
}

// TestModelOfRecreate: new pods never run beside old ones, unless the template changes back, and the rollout ends,
// also after lost responses.
func TestModelOfRecreate(t *testing.T) {
	var w walks
	for _, tt := range []struct {
		replicas        int
		changes, losses int8
	}{{1, 1, 0}, {2, 1, 0}, {1, 2, 0}, {2, 2, 0}, {2, 2, 1}, {1, 3, 2}} {
		m := &model{strategy: appsv1.RecreateDeploymentStrategyType, replicas: tt.replicas, sets: 2}
		start := m.finished(tt.changes)
		start.losses = tt.losses
		w.add(tt, m, start, func(_, to modelState, quiet bool) string {
			switch a, b := to.sets[0], to.sets[1]; {
			case quiet:
				return m.unfinished(to)
			case a.pods() > 0 && b.pods() > 0:
				return fmt.Sprintf("%d pods of one template and %d of the other", a.pods(), b.pods())
			}
			return ""
		})
	}
	w.tell(t)
}
