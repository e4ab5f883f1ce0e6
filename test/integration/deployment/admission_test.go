package deployment

import (
	"context"
	"fmt"
	"testing"

	"minikcm/test/controlplane"
)

// testSlowAdmissionHoldsUpNoOtherDeployment rolls out a Deployment while the ReplicaSets of more Deployments than
// there are workers wait for a webhook.
func testSlowAdmissionHoldsUpNoOtherDeployment(t *testing.T, m *manager) {
	slow := newNamespace(t)
	const count = 8
	hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"CREATE"}, APIGroup: "apps", Resource: "replicasets", Namespace: slow.name, TimeoutSeconds: 30})
	hook.Hang()
	for i := range count {
		slow.applyNamed(fmt.Sprint("web-", i), 1)
	}
	slow.eventually(func(context.Context) error {
		if got := hook.Requests(); got < count {
			return fmt.Errorf("%d creates wait, want %d", got, count)
		}
		return nil
	})
	other := newNamespace(t)
	other.apply(2)
	other.complete()
	other.edit(image("v2"))
	other.complete()
	for _, r := range slow.requests(m) {
		if r.Verb == "create" && r.Resource == "replicasets" && r.Code != 0 {
			t.Errorf("the other Deployment was complete only after the create of %s had ended with %d", r.Name, r.Code)
		}
	}
	hook.Heal()
	for i := range count {
		slow.completeNamed(fmt.Sprint("web-", i))
	}
}
