package deployment

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The model walks through all states that a Deployment and up to three ReplicaSets can come to, whichever of them, their controller, the kubelets and
// users moves next. It decides with rollout itself. ReplicaSet controllers see changes of sizes late, count deleted pods for a while, and
// write their status late; pods become ready, then available, and never cease to be by themselves; of ready pods any may be deleted first; a
// pass can be killed after each of its writes.
// The cache of pods shows what there is, or helps as little as it can: it shows neither ready nor unfinished ones, and either never makes available pods less; or,
// where it lags, it shows for any of the ReplicaSets that none is available. Where writes fail, any of the reductions of a pass may be refused, any of the
// ReplicaSets may be held back because a change of it was refused before, and a create may not be answered: it is carried out later, or never.
//
// After an outage there are two old ReplicaSets whose pods are not ready. They may recover, and their statuses tell of that late; there the cache shows what there
// is, or, where it lags, that of any of the ReplicaSets no pod is ready. Or they never do.
//
// Where one refuses everything for good, the others do what it does not.
//
// Where pods are ready before they are available, one that becomes ready after it was given up as not ready may cost an available one: which of both is
// deleted is up to their nodes and costs. There the cache shows ready pods, and none becomes ready while its ReplicaSet is to shrink.

// modelSet is a ReplicaSet of the model; its template is its index.
type modelSet struct {
	exists      bool
	unanswered  int8 // size with which it was to be created; nobody knows yet what became of that
	first       bool // it has never been resized
	size        int8
	known       int8 // size, as its controller knows it
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
	sizedForOld bool // its annotations tell another number of replicas than the Deployment's
	doubtful    bool // see set
	failing     bool // the status tells that deletes are refused
}

func (m modelSet) active() int8 { return m.up + m.early + m.down }

func (m modelSet) gone() int8 { return m.upGone + m.earlyGone + m.downGone }

func (m modelSet) pods() int8 { return m.active() + m.gone() }

type modelState struct {
	template int8 // of the Deployment
	changes  int8 // of the template that are still to come
	losses   int8 // of answers to creates
	scaled   bool
	back     bool // it was, and that was taken back
	sets     [3]modelSet
}

// secured is how many available pods are left when the size that was written last has been carried out, and perhaps the one that its controller
// knows before that, whichever of the ready pods go first.
func (m modelSet) secured() int {
	return int(max(0, m.up-max(0, m.active()-min(m.size, m.known)-m.down)))
}

// caughtUp is as that of a set.
func (m modelSet) caughtUp() bool { return m.first || m.told && m.replicas <= m.size }

// model is what stays the same in a walk.
type model struct {
	strategy           appsv1.DeploymentStrategyType
	replicas           int
	scaleTo            int  // once; 0: never
	takesBack          bool // the number of replicas is what it was, after that
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

// seenState is what a pass can see.
type seenState struct {
	modelState
	view view
	held held
}

// held are ReplicaSets, a bit for each, of which no change is carried out in a pass, and the pass knows that it may be so.
type held uint8

func (h held) has(set int) bool { return h&(1<<set) != 0 }

// view is what the cache of pods shows: a bit for each ReplicaSet of which it shows no available pods though it shows all that its size allows of the others; or
// what there is.
type view uint8

const (
	showsAll   view = 0
	showsTruth view = 1 << 7
)

func (v view) behind(set int) bool { return v&(1<<set) != 0 }

// step is one thing that can happen.
type step struct {
	act act
	to  modelState
}

// act says what happens, to which ReplicaSet, and in which number.
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

// decide asks rollout, with what the cache of pods shows.
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
			f.pendingNew += int(v.unanswered)
		case !v.exists:
			f.pendingOld += int(v.unanswered)
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
	pass := planningPass(d, sets, now)
	pass.facts = f
	all := pass.makePlan()
	p := &plan{create: all.create, changes: all.changes, capacity: all.capacity}
	m.plans[seen] = p
	return p
}

// next returns what can happen in a state; it is valid until it is asked again. quiet: nothing but what users may do.
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
		if v.unanswered > 0 {
			add("create is carried out", i, created(v.unanswered))
			add("create is not carried out", i, modelSet{})
		}
		if !v.exists {
			continue
		}
		if !v.fresh && !(v.doubtful && v.gone() > 0) { // our ReplicaSet controller sees its deletes before it looks at another size
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

// writes adds the state after each write of a pass.
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

// failures adds the states after passes of which a create was not answered, or some of the reductions were refused.
func (m *model) failures(s modelState) {
	if s.losses == 0 && !m.fails {
		return
	}
	p := m.decide(s, showsAll, 0)
	if p.create != nil && s.losses > 0 && *p.create.Spec.Replicas > 0 {
		to := s
		to.losses--
		to.sets[s.template].unanswered = max(s.sets[s.template].unanswered, int8(*p.create.Spec.Replicas))
		m.step("not answered: create", int(s.template), int8(*p.create.Spec.Replicas), to)
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

// write carries out a change of one ReplicaSet; fresh is the one that was created in the same pass.
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

// walk visits every state and returns a path to the first that check objects to.
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

// finished is the state in which a Deployment has all its pods.
func (m *model) finished(changes int8) modelState {
	s := modelState{changes: changes}
	s.sets[0] = running(int8(m.replicas))
	return s
}

// between is the state in which two old ReplicaSets share the pods.
func (m *model) between(older int8) modelState {
	s := modelState{template: 2}
	s.sets[0], s.sets[1] = running(older), running(int8(m.replicas)-older)
	return s
}

func running(size int8) modelSet {
	return modelSet{exists: true, size: size, known: size, fresh: true, told: true, replicas: size, ready: size, available: size, up: size}
}

// afterOutage is the state in which two old ReplicaSets have lost their pods, and so has the new one.
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

// TestModelOfRollingUpdates: however late the statuses are, whenever the template changes, back too, and wherever a pass is cut off, the sizes do not add
// up to more than replicas and surge, available pods that are as many as the Deployment asks for stay as many, and the rollout ends.
func TestModelOfRollingUpdates(t *testing.T) { modelOfRollingUpdates().tell(t) }

var modelOfRollingUpdates = walked(func() (w walks) {
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
		{2, 1, 0, false, false}, {3, 1, 1, false, false}, {2, 1, 1, true, false}, {2, 1, 0, false, true}, {3, 1, 1, false, true}, {3, 0, 1, false, true}, {2, 1, 1, true, true},
	} {
		m := &model{strategy: appsv1.RollingUpdateDeploymentStrategyType, replicas: tt.replicas, surge: tt.surge, unavailable: tt.unavailable, sets: 2,
			minReady: tt.minReady, restarts: !tt.undeletable, undeletable: tt.undeletable}
		w.add(tt, m, m.finished(2), m.withinBounds)
	}
	return w
})

// walks are what came of walking through models.
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

// walked walks once: when a test is run again it finds what it found before.
func walked(walk func() walks) func() walks { return sync.OnceValue(walk) }

func (w walks) tell(t *testing.T) {
	for _, problem := range w.problems {
		t.Error(problem)
	}
	t.Logf("%d states", w.states)
}

// withinBounds checks a rolling update at a constant number of replicas.
func (m *model) withinBounds(from, to modelState, quiet bool) string {
	had, told, left, sum := 0, 0, 0, sizesIn(to)
	for i, v := range from.sets {
		had, told, left = had+v.secured(), told+int(min(v.size, v.available)), left+to.sets[i].secured()
	}
	if m.outage && m.lags { // what neither the statuses nor the cache of pods tell of nobody can spare
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

// TestModelOfScaling: a Deployment that is scaled at any moment of a rollout gets the new number of pods of its template, and on the way no write makes
// the sizes add up to more than replicas and surge, or more than they were.
func TestModelOfScaling(t *testing.T) { modelOfScaling().tell(t) }

var modelOfScaling = walked(func() (w walks) {
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
	return w
})

// TestModelOfScalingThatIsTakenBack, also where no pod can be deleted: the Deployment has its pods again without one having to go first, and a rollout beside
// that stays within its bounds.
func TestModelOfScalingThatIsTakenBack(t *testing.T) { modelOfScalingThatIsTakenBack().tell(t) }

var modelOfScalingThatIsTakenBack = walked(func() (w walks) {
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
				case quiet && (!to.back || tt.undeletable && strategy == appsv1.RecreateDeploymentStrategyType && to.template == 1): // its old pods never go
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
	return w
})

// TestModelOfRecreate: there is never a pod of the new template beside one of an old one, unless the template went back to the one whose pods are
// there, and the rollout ends; also if the answer to a create is lost.
func TestModelOfRecreate(t *testing.T) { modelOfRecreate().tell(t) }

var modelOfRecreate = walked(func() (w walks) {
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
	return w
})
