package controlplane

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var cluster *Cluster

func TestMain(m *testing.M) {
	os.Exit(Run(m, Options{Audit: true, SecondAPIServer: true}, func(c *Cluster) { cluster = c }))
}

func TestAuditLogShowsWhoDidWhat(t *testing.T) {
	ns := cluster.Namespace(t)
	cfg := cluster.ConfigFor("auditee", "system:masters")
	cfg.UserAgent = "auditee/1"
	client := ClientFor(t, cfg)
	_, err := client.AppsV1().ReplicaSets(ns).Create(t.Context(), ReplicaSet(ns, "web", 2), metav1.CreateOptions{})
	Must(t, err)
	if _, err := client.AppsV1().ReplicaSets(ns).Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("get ReplicaSet none: %v, want not found", err)
	}
	_, err = ClientFor(t, cluster.AtSecond(cfg)).CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	Must(t, err)

	all := cluster.AuditLog(t, ByUser("auditee"), ByNamespace(ns))
	if got := all.Select(Completed); len(got) != 3 {
		t.Errorf("%d completed requests, want a create, a get and a list:\n%s", len(got), got)
	}
	for name, matches := range map[string][]AuditMatch{
		"received": {Received, ByVerb("create")}, "name": {Completed, ByName("web")}, "resource": {Completed, ByResource("pods", "pods/status")},
		"writes": {Completed, Writes}, "user agent": {Completed, ByUserAgent("auditee/"), ByVerb("list")}, "code": {ByCode(http.StatusNotFound, http.StatusConflict)},
	} {
		if got := all.Select(matches...); len(got) != 1 {
			t.Errorf("%s: %d events, want 1:\n%s", name, len(got), got)
		}
	}
}

// TestAuditLogIsComplete lists many objects: parts of the response are sent before the end of the request is logged.
func TestAuditLogIsComplete(t *testing.T) {
	client := ClientFor(t, cluster.ConfigFor("prober", "system:masters"))
	before := len(cluster.AuditLog(t, Completed, ByUser("prober")))
	for n := before + 1; n <= before+100; n++ {
		_, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
		Must(t, err)
		if got := cluster.AuditLog(t, Completed, ByUser("prober")); len(got) != n {
			t.Fatalf("%d answers in the audit log, want %d", len(got), n)
		}
	}
}

// TestAuditLogOfAKilledServer reads a log in which the line of a killed server is incomplete.
func TestAuditLogOfAKilledServer(t *testing.T) {
	event := func(verb string) string {
		return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":%q,"user":{"groups":["a"]}}`, verb)
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	text := event("get") + "\n" + event("list")[:60] + event("create") + "\n" + event("update")[:30]
	Must(t, os.WriteFile(path, []byte(text), 0o600))
	events, err := (&auditFile{path: path}).readEvents(time.Time{})
	Must(t, err)
	var got []string
	for _, e := range events {
		got = append(got, e.Verb)
	}
	if diff := cmp.Diff([]string{"get", "create"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
