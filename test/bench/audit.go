package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Audit policies log no more than is counted, so that the log costs next to nothing. Only answers are logged.
const (
	policyHead = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
`
	managerRequests = policyHead + `
- {level: Metadata, users: [` + managerUser + `]}
- {level: None}
`
	managerWrites = policyHead + `
- {level: Metadata, users: [` + managerUser + `], verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
`
	podCreates = policyHead + `
- {level: Metadata, verbs: [create], resources: [{group: "", resources: [pods]}]}
- {level: None}
`
)

// auditLog is the path of an API server's audit log.
type auditLog string

// where returns the answered requests that match accepts, in the order of the log.
func (l auditLog) where(match func(*auditv1.Event) bool) ([]auditv1.Event, error) {
	text, err := os.ReadFile(string(l))
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	var events []auditv1.Event
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("parse audit log: %w", err)
		}
		if match(&event) {
			events = append(events, event)
		}
	}
	return events, nil
}

// requestsOf accepts what a user asked for, except for watches, which are logged when they end.
func requestsOf(user string) func(*auditv1.Event) bool {
	return func(e *auditv1.Event) bool { return e.User.Username == user && e.Verb != "watch" }
}

// withCode accepts answers with one of the HTTP codes.
func withCode(events []auditv1.Event, codes ...int32) []auditv1.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e auditv1.Event) bool {
		return e.ResponseStatus == nil || !slices.Contains(codes, e.ResponseStatus.Code)
	})
}
