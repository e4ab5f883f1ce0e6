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

	"minikcm/test/controlplane"
)

const (
	// reported is the number of violations with a history, linesEach the length of a history.
	reported  = 6
	linesEach = 120
	// around a violation that has a time, this much is shown.
	around = 15 * time.Second
	// linesPerSecond and sameLines bound the log of a manager.
	linesPerSecond = 60
	sameLines      = 1500
)

// violation is a promise that was broken.
type violation struct {
	of   string // key of an object, or name of a slot
	text string
}

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

func (r *rig) judgeLogs() {
	numbers := regexp.MustCompile(`[0-9a-f-]*[0-9][0-9a-f-]*|"[^"]*"$`)
	for _, s := range r.slots {
		for n, l := range s.all() {
			to := cmp.Or(l.to, time.Now())
			lines, same := 0, map[string]int{}
			for line := range strings.Lines(l.Output()) {
				lines++
				for _, bad := range []string{"DATA RACE", "panic", "fatal error", "goroutine "} {
					if strings.Contains(line, bad) {
						r.violate(s.name, fmt.Sprintf("process %d of %s printed %q", n+1, s.name, strings.TrimSpace(line)))
						break
					}
				}
				_, message, _ := strings.Cut(line, "] ")
				same[numbers.ReplaceAllString(message[:min(len(message), 60)], "#")]++
			}
			if most := linesPerSecond * max(10, to.Sub(l.from).Seconds()); float64(lines) > most {
				r.violate(s.name, fmt.Sprintf("process %d of %s printed %d lines in %v", n+1, s.name, lines, to.Sub(l.from).Round(time.Second)))
			}
			for message, times := range same {
				if times > sameLines {
					r.violate(s.name, fmt.Sprintf("process %d of %s printed %d times %q", n+1, s.name, times, message))
				}
			}
		}
	}
}

func (r *rig) report() error {
	r.lock.Lock()
	defer r.lock.Unlock()
	if len(r.violations) == 0 {
		r.say("seed %d: nothing to complain of", r.options.seed)
		return nil
	}
	for i, v := range r.violations {
		fmt.Printf("\nVIOLATION (seed %d): %s: %s\n", r.options.seed, v.of, v.text)
		if i < reported {
			r.tell(v)
		}
	}
	return fmt.Errorf("seed %d: %d violations: %w", r.options.seed, len(r.violations), errViolated)
}

type told struct {
	at   time.Time
	text string
}

func (r *rig) tell(v timed) {
	var story []told
	add := func(at time.Time, format string, args ...any) {
		story = append(story, told{at, fmt.Sprintf(format, args...)})
	}
	name := v.of[strings.LastIndex(v.of, "/")+1:]
	for _, e := range r.diary {
		if e.of == "" || e.of == v.of || strings.HasPrefix(e.of, "manager-") {
			add(e.at, "  did   %s %s", e.of, e.text)
		}
	}
	for _, h := range r.histories.all() {
		for _, c := range h.all() {
			if concerns(c, v.of) {
				add(c.at, "  is    %s", describe(h.resource, c))
			}
		}
	}
	if events, err := r.cluster.ReadAuditLog(); err == nil && name != "" {
		for _, e := range events.Select(controlplane.Completed, controlplane.Writes) {
			if e.ObjectRef != nil && (strings.HasPrefix(e.ObjectRef.Name, name) || e.ObjectRef.Namespace == name) && e.ObjectRef.Resource != "events" {
				code := int32(0)
				if e.ResponseStatus != nil {
					code = e.ResponseStatus.Code
				}
				add(e.RequestReceivedTimestamp.Time, "  asked %s %s: %d %s (%s)", e.Verb, e.RequestURI, code, e.User.Username, e.UserAgent[strings.LastIndex(e.UserAgent, "/")+1:])
			}
		}
	}
	slices.SortStableFunc(story, func(a, b told) int { return a.at.Compare(b.at) })
	if !v.at.IsZero() {
		story = slices.DeleteFunc(story, func(t told) bool { return t.at.Before(v.at.Add(-around)) || t.at.After(v.at.Add(around/3)) })
	}
	for _, t := range story[max(0, len(story)-linesEach):] {
		fmt.Printf("%s %s\n", t.at.Format("15:04:05.000"), t.text)
	}
}

func concerns(c change, key string) bool {
	if pod, ok := c.object.(*corev1.Pod); ok && key != "" {
		return strings.HasPrefix(keyOf(pod), key) || pod.Spec.NodeName == key
	}
	return keyOf(c.object) == key
}

func describe(resource string, c change) string {
	text := fmt.Sprintf("%s %s v%d", resource, keyOf(c.object), c.version)
	if c.deleted {
		text += " DELETED"
	}
	if c.missed {
		text += " (listed)"
	}
	if at := c.object.GetDeletionTimestamp(); at != nil {
		text += " terminating"
	}
	switch o := c.object.(type) {
	case *corev1.Pod:
		owner := ""
		if ref := setOf(o); ref != nil {
			owner = ref.Name
		}
		text += fmt.Sprintf(" owner=%s app=%s node=%s phase=%s ready=%v", owner, o.Labels["app"], o.Spec.NodeName, o.Status.Phase, ready(o.Status.Conditions))
	case *appsv1.ReplicaSet:
		text += fmt.Sprintf(" want=%d gen=%d status=%+v", *o.Spec.Replicas, o.Generation, o.Status)
	case *corev1.Node:
		text += fmt.Sprintf(" ready=%s taints=%v", nodeReady(o), o.Spec.Taints)
	case *corev1.Namespace:
		text += fmt.Sprintf(" uid=%s phase=%s", o.UID, o.Status.Phase)
	}
	return text
}
