package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

func meddle(ctx context.Context, f *fault) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	leases := f.client.CoordinationV1().Leases(leaseSpace)
	how := f.draw.IntN(6)
	if how == 0 {
		f.note("", "Lease deleted")
		return gone(leases.Delete(ctx, leaseName, metav1.DeleteOptions{}))
	}
	lease, err := leases.Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return gone(err)
	}
	edits := []struct {
		what string
		do   func(*coordinationv1.LeaseSpec)
	}{
		{"stolen", func(s *coordinationv1.LeaseSpec) {
			s.HolderIdentity, s.RenewTime, s.LeaseDurationSeconds = ptr.To("thief"), ptr.To(metav1.NowMicro()), ptr.To[int32](3)
		}},
		{"emptied", func(s *coordinationv1.LeaseSpec) { *s = coordinationv1.LeaseSpec{} }},
		{"released in another's name", func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = ptr.To("") }},
		{"dated far ahead", func(s *coordinationv1.LeaseSpec) {
			s.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(240 * time.Hour)))
		}},
		{"dated far back", func(s *coordinationv1.LeaseSpec) {
			s.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(-240 * time.Hour)))
		}},
	}
	edit := edits[how-1]
	f.note("", "Lease %s", edit.what)
	edit.do(&lease.Spec)
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// compact compacts etcd through the JSON gateway.
func compact(ctx context.Context, f *fault) error {
	list, err := f.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil // the API server is away
	}
	f.note("", "etcd compacted at %s", list.ResourceVersion)
	body := strings.NewReader(fmt.Sprintf(`{"revision":%q}`, list.ResourceVersion))
	answer, err := http.Post(f.cluster.EtcdURL()+"/v3/kv/compaction", "application/json", body)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("compact etcd: %s", answer.Status)
	}
	return nil
}

func apiRestart(_ context.Context, f *fault) error {
	return f.away.during(func() error {
		f.note("", "API server restarts")
		defer f.note("", "API server has restarted")
		return f.cluster.RestartAPIServer()
	})
}

func apiDown(ctx context.Context, f *fault) error {
	return f.away.during(func() error {
		f.note("", "API server killed")
		if err := f.cluster.KillAPIServer(); err != nil {
			return err
		}
		<-ctx.Done()
		defer f.note("", "API server is back")
		return f.cluster.StartAPIServer()
	})
}

func apiPause(ctx context.Context, f *fault) error {
	return f.away.during(func() error {
		f.note("", "API server stands still")
		if err := f.cluster.PauseAPIServer(); err != nil {
			return err
		}
		<-ctx.Done()
		defer f.note("", "API server goes on")
		return f.cluster.ResumeAPIServer()
	})
}

// admission returns a fault of a webhook for writes of managers to pods. Kubelets and the user do not meet the
// webhook.
func admission(how func(*fault, *controlplane.Admission) string) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		verbs, _ := pick([][]string{{"CREATE"}, {"DELETE"}, {"CREATE", "DELETE"}}, f.draw)
		hook := controlplane.Webhook{
			Operations: verbs, Resource: "pods", Users: "manager-", TimeoutSeconds: int32(1 + f.draw.IntN(12)), Ignore: f.draw.IntN(2) == 0,
		}
		return f.slowed.during(func() error {
			running, err := f.cluster.StartWebhook(ctx, hook)
			if err != nil {
				return nil // the API server is away
			}
			f.note("", "admission of %v by managers %s, %d s are waited for, ignored: %v", verbs, how(f, running), hook.TimeoutSeconds, hook.Ignore)
			<-ctx.Done()
			defer f.note("", "admission is as before")
			return running.Stop()
		})
	}
}
