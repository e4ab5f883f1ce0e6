package main

import (
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

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

func requestsOf(user string) func(*auditv1.Event) bool {
	return func(e *auditv1.Event) bool { return e.User.Username == user && e.Verb != "watch" }
}
