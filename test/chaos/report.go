package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

const (
	// reported is the number of violations with a history, linesEach the length of a history.
	reported  = 6
	linesEach = 120
	// historySpan is the time before a violation that is shown.
	historySpan = 15 * time.Second
	// linesPerSecond and sameLines bound the log of a manager.
	linesPerSecond = 60
	sameLines      = 1500
)

// violation is a promise that was broken. of is the key of an object, or the name of a slot.
type violation struct{ of, text string }

type timed struct {
	violation
	at time.Time // zero: unknown
}

func (r *rig) violate(of, text string) { r.violateAt(of, time.Time{}, text) }

func (r *rig) violateAt(of string, at time.Time, text string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.violations = append(r.violations, timed{violation{of, text}, at})
}

var (
	badLine = regexp.MustCompile("DATA RACE|panic|fatal error|goroutine ")
	numbers = regexp.MustCompile(`[0-9a-f-]*[0-9][0-9a-f-]*|"[^"]*"$`)
)

func (r *rig) judgeLogs() {
	for _, s := range r.slots {
		for n, l := range s.allLives() {
			complain := func(format string, args ...any) {
				r.violate(s.name, fmt.Sprintf("process %d of %s printed ", n+1, s.name)+fmt.Sprintf(format, args...))
			}
			lines, same := 0, map[string]int{}
			for line := range strings.Lines(l.Output()) {
				lines++
				if badLine.MatchString(line) {
					complain("%q", strings.TrimSpace(line))
				}
				_, message, _ := strings.Cut(line, "] ")
				same[numbers.ReplaceAllString(message[:min(len(message), 60)], "#")]++
			}
			lasted := cmp.Or(l.to, time.Now()).Sub(l.from)
			if float64(lines) > linesPerSecond*max(10, lasted.Seconds()) {
				complain("%d lines in %v", lines, lasted.Round(time.Second))
			}
			for message, times := range same {
				if times > sameLines {
					complain("%d times %q", times, message)
				}
			}
		}
	}
}

func (r *rig) report() error {
	r.lock.Lock()
	defer r.lock.Unlock()
	if len(r.violations) == 0 {
		r.printLine("seed %d: no violations", r.options.seed)
		return nil
	}
	for i, v := range r.violations {
		fmt.Printf("\nVIOLATION (seed %d): %s: %s\n", r.options.seed, v.of, v.text)
		if i < reported {
			r.printHistory(v)
		}
	}
	first := r.violations[0]
	return fmt.Errorf("seed %d: %d violations, the first: %s: %s", r.options.seed, len(r.violations), first.of, first.text)
}

// printHistory prints the diary, the changes and the requests of the object around a violation.
func (r *rig) printHistory(v timed) {
	var story []entry
	for _, e := range r.diary {
		if e.of == "" || e.of == v.of || strings.HasPrefix(e.of, "manager-") {
			story = append(story, entry{at: e.at, text: fmt.Sprintf("  did   %s %s", e.of, e.text)})
		}
	}
	for _, h := range r.histories.allTypes() {
		for _, c := range h.allChanges() {
			pod, isPod := c.object.(*corev1.Pod)
			if keyOf(c.object) == v.of || isPod && v.of != "" && (strings.HasPrefix(keyOf(pod), v.of) || pod.Spec.NodeName == v.of) {
				story = append(story, entry{at: c.at, text: "  is    " + describeChange(h.resource, c)})
			}
		}
	}
	name := v.of[strings.LastIndex(v.of, "/")+1:]
	if events, err := r.cluster.ReadAuditLog(controlplane.Completed, controlplane.Writes); err == nil && name != "" {
		for i, e := range events {
			if e.ObjectRef != nil && (strings.HasPrefix(e.ObjectRef.Name, name) || e.ObjectRef.Namespace == name) && e.ObjectRef.Resource != "events" {
				story = append(story, entry{at: e.RequestReceivedTimestamp.Time, text: "  sent  " + strings.TrimSpace(events[i:i+1].String())})
			}
		}
	}
	slices.SortStableFunc(story, func(a, b entry) int { return a.at.Compare(b.at) })
	if !v.at.IsZero() {
		story = slices.DeleteFunc(story, func(e entry) bool { return e.at.Before(v.at.Add(-historySpan)) || e.at.After(v.at.Add(historySpan/3)) })
	}
	for _, e := range story[max(0, len(story)-linesEach):] {
		fmt.Printf("%s %s\n", e.at.Format("15:04:05.000"), e.text)
	}
}

func describeChange(resource string, c change) string {
	text := fmt.Sprintf("%s %s v%d deleted=%v listed=%v terminating=%v", resource, keyOf(c.object), c.version, c.deleted, c.missed, c.object.GetDeletionTimestamp() != nil)
	switch o := c.object.(type) {
	case *corev1.Pod:
		owner := ""
		if ref := controllerSet(o); ref != nil {
			owner = ref.Name
		}
		text += fmt.Sprintf(" owner=%s app=%s node=%s phase=%s ready=%v", owner, o.Labels["app"], o.Spec.NodeName, o.Status.Phase, kubelet.IsReady(o))
	case *appsv1.ReplicaSet:
		text += fmt.Sprintf(" want=%d gen=%d status=%s", *o.Spec.Replicas, o.Generation, &o.Status)
	case *corev1.Node:
		text += fmt.Sprintf(" ready=%s taints=%v", controlplane.NodeReady(o), o.Spec.Taints)
	}
	return text
}
