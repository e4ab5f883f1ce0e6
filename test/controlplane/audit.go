package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// AuditLog returns the requests to the API servers since the cluster started that all matches accept, ordered by the
// time of the stage: one event when a request was received, another when the response was complete. The log holds all
// requests completed before the call, because the API server logs a request before the end of the response.
// Options.Audit must be on.
func (c *Cluster) AuditLog(t testing.TB, matches ...AuditMatch) AuditEvents {
	t.Helper()
	return c.AuditLogSince(t, time.Time{}, matches...)
}

// AuditLogSince is AuditLog without stages before since.
func (c *Cluster) AuditLogSince(t testing.TB, since time.Time, matches ...AuditMatch) AuditEvents {
	t.Helper()
	events, err := c.readAuditLog(since, matches...)
	Must(t, err)
	return events
}

// ReadAuditLog is AuditLog for programs.
func (c *Cluster) ReadAuditLog(matches ...AuditMatch) (AuditEvents, error) {
	return c.readAuditLog(time.Time{}, matches...)
}

func (c *Cluster) readAuditLog(since time.Time, matches ...AuditMatch) (AuditEvents, error) {
	var all AuditEvents
	for _, s := range []*server{c.primary, c.second} {
		if s == nil {
			continue
		}
		if s.audit == nil {
			return nil, errors.New("read audit log: the cluster was started without Options.Audit")
		}
		events, err := s.audit.readEvents(since)
		if err != nil {
			return nil, fmt.Errorf("read audit log of %s: %w", s.name, err)
		}
		all = append(all, events.Select(append(matches, notBefore(since))...)...)
	}
	slices.SortStableFunc(all, func(a, b auditv1.Event) int {
		return a.StageTimestamp.Compare(b.StageTimestamp.Time)
	})
	return all, nil
}

func notBefore(since time.Time) AuditMatch {
	return func(e *auditv1.Event) bool { return !e.StageTimestamp.Time.Before(since) }
}

// auditFile reads a growing audit log, every line once.
type auditFile struct {
	path string

	lock   sync.Mutex
	offset int64 // of the first byte not yet parsed
	events AuditEvents
}

// auditDisorder exceeds the delay between the stage of an event and the log line.
const auditDisorder = 10 * time.Second

// readEvents returns the events up to the last complete line, without most events before since. Callers must not change
// the events.
func (f *auditFile) readEvents(since time.Time) (AuditEvents, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(f.offset, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var event auditv1.Event
		if err := json.Unmarshal(dropIncomplete(line), &event); err != nil {
			return nil, fmt.Errorf("parse audit event: %w", err)
		}
		f.offset += int64(len(line))
		f.events = append(f.events, event)
	}
	first := sort.Search(len(f.events), func(i int) bool { return f.events[i].StageTimestamp.After(since.Add(-auditDisorder)) })
	return slices.Clip(f.events)[first:], nil
}

// dropIncomplete drops the incomplete event of a killed API server at the beginning of a line.
func dropIncomplete(line []byte) []byte {
	return line[max(0, bytes.LastIndex(line, []byte(`{"kind":"Event","apiVersion":"audit.k8s.io/`))):]
}

type AuditEvents []auditv1.Event

// AuditMatch accepts or refuses one audit event.
type AuditMatch func(*auditv1.Event) bool

// Select returns the events that every match accepts.
func (events AuditEvents) Select(matches ...AuditMatch) AuditEvents {
	var kept AuditEvents
	for i := range events {
		if !slices.ContainsFunc(matches, func(m AuditMatch) bool { return !m(&events[i]) }) {
			kept = append(kept, events[i])
		}
	}
	return kept
}

func (events AuditEvents) String() string {
	var b strings.Builder
	for _, e := range events {
		code := int32(0)
		if e.ResponseStatus != nil {
			code = e.ResponseStatus.Code
		}
		fmt.Fprintf(&b, "%s %s %d %s %s (%s, %s)\n",
			e.StageTimestamp.Format("15:04:05.000000"), e.Stage, code, e.Verb, e.RequestURI, e.User.Username, e.UserAgent)
	}
	return b.String()
}

func Received(e *auditv1.Event) bool { return e.Stage == auditv1.StageRequestReceived }

// Completed accepts the stage at which the response was complete. For a watch that is the end of the stream.
func Completed(e *auditv1.Event) bool { return e.Stage == auditv1.StageResponseComplete }

// Succeeded accepts responses with a code below 300.
func Succeeded(e *auditv1.Event) bool { return e.ResponseStatus != nil && e.ResponseStatus.Code < 300 }

func Writes(e *auditv1.Event) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb)
}

func ByVerb(verbs ...string) AuditMatch {
	return func(e *auditv1.Event) bool { return slices.Contains(verbs, e.Verb) }
}

// ByResource accepts requests for the resources. A subresource is given as pods/status.
func ByResource(resources ...string) AuditMatch {
	return func(e *auditv1.Event) bool {
		if e.ObjectRef == nil {
			return false
		}
		name := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			name += "/" + e.ObjectRef.Subresource
		}
		return slices.Contains(resources, name)
	}
}

// ByNamespace accepts requests for objects in the namespace.
func ByNamespace(namespace string) AuditMatch {
	return func(e *auditv1.Event) bool { return e.ObjectRef != nil && e.ObjectRef.Namespace == namespace }
}

// ByName accepts requests for the object of that name. A create has a name only if the client chose the name.
func ByName(name string) AuditMatch {
	return func(e *auditv1.Event) bool { return e.ObjectRef != nil && e.ObjectRef.Name == name }
}

// ByUser accepts requests of the user.
func ByUser(user string) AuditMatch {
	return func(e *auditv1.Event) bool { return e.User.Username == user }
}

// ByUserAgent accepts requests whose user agent contains part.
func ByUserAgent(part string) AuditMatch {
	return func(e *auditv1.Event) bool { return strings.Contains(e.UserAgent, part) }
}

func ByCode(codes ...int32) AuditMatch {
	return func(e *auditv1.Event) bool {
		return e.ResponseStatus != nil && slices.Contains(codes, e.ResponseStatus.Code)
	}
}
