package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func TestWritesAreCountedByLoopAndResource(t *testing.T) {
	event := func(agent, verb, resource, subresource string, code int32) auditv1.Event {
		return auditv1.Event{
			UserAgent: "program/v1 (linux/amd64) kubernetes/0/" + agent, Verb: verb,
			ObjectRef:      &auditv1.ObjectReference{Resource: resource, Subresource: subresource},
			ResponseStatus: &metav1.Status{Code: code},
		}
	}
	const conflict = 409
	events := []auditv1.Event{
		event(deploymentController, "update", "deployments", "status", 200),
		event(deploymentController, "update", "deployments", "status", conflict),
		event(deploymentController, "create", "replicasets", "", 201),
		event(deploymentController, "patch", "replicasets", "", 200),
		event(deploymentController, "update", "replicasets", "", conflict),
		event(deploymentController, "create", "events", "", 201),
		event(deploymentController, "list", "replicasets", "", 200),
		event(replicaSetController, "update", "replicasets", "status", 200),
		event(replicaSetController, "update", "replicasets", "status", conflict),
		event(replicaSetController, "create", "pods", "", 201),
		event("kubectl", "patch", "deployments", "", conflict),
	}
	if got, want := countWritten(events), (written{deployments: 2, sets: 3, statuses: 2, conflicts: 2, clashes: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}
