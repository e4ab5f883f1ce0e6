// Package garbagecollector_test runs the garbage collector against a real API server.
package garbagecollector_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
	"minikcm/pkg/controllers/garbagecollector"
	"minikcm/test/controlplane"
)

var cluster *controlplane.Cluster

var logs = flag.Bool("logs", false, "show what the controller logs")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*logs {
		klog.SetLogger(klog.Logger{})
	}
	setUpProcess()
	os.Exit(controlplane.Run(m, controlplane.Options{
		Audit: true, SecondAPIServer: true,
	}, func(c *controlplane.Cluster) { cluster = c }))
}

func setUpProcess() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cmd := command.New(app.Controllers())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--kubeconfig=" + os.DevNull + "/none"})
	_ = cmd.ExecuteContext(ctx)
}

const soon = 30 * time.Second

type collector struct {
	*controlplane.Manager

	user string
	port int
}

func start(t testing.TB, through func(*rest.Config) *rest.Config, flags ...string) *collector {
	t.Helper()
	account := "gc-" + rand.String(8)
	cfg := cluster.ManagerConfig(account, garbagecollector.Name)
	if through != nil {
		cfg, account = through(cfg), proxiedAccount
	}
	c := &collector{user: controlplane.ServiceAccount(account), port: controlplane.FreePort(t)}
	c.Manager = controlplane.StartManager(t, command.New(app.Controllers()), append(c.flags(t, cfg), flags...)...)
	return c
}

func (c *collector) flags(t testing.TB, cfg *rest.Config) []string {
	t.Helper()
	return []string{
		"--kubeconfig=" + cluster.KubeconfigFor(t, cfg), "--controllers=garbagecollector", "--leader-elect=false", fmt.Sprintf("--secure-port=%d", c.port), "--bind-address=127.0.0.1",
		"--authentication-kubeconfig=" + cluster.Kubeconfig(t, "admin", "system:masters"), "--authorization-kubeconfig=" + cluster.Kubeconfig(t, "admin", "system:masters"),
	}
}

func (c *collector) writes(t testing.TB, matches ...controlplane.AuditMatch) controlplane.AuditEvents {
	t.Helper()
	matches = append(matches, controlplane.ByUser(c.user), controlplane.Writes, controlplane.Completed)
	return slices.DeleteFunc(cluster.AuditLog(t, matches...), func(e auditv1.Event) bool { return e.ObjectRef.Resource == "events" })
}

// startAll runs controllers until the test ends, with the rights of all.
func startAll(t testing.TB, controllers string) {
	t.Helper()
	controlplane.StartManager(t, command.New(app.Controllers()), "--kubeconfig="+cluster.ManagerKubeconfig(t, "gc-"+rand.String(8)), "--secure-port=0",
		"--leader-elect=false", "--controllers="+controllers)
}

func (c *collector) metric(t testing.TB, name, labels string) (sum float64) {
	t.Helper()
	var page []byte
	controlplane.Eventually(t, soon, func(ctx context.Context) (err error) {
		page, err = controlplane.Page(ctx, cluster.Config(), c.port, "/metrics")
		return err
	})
	for line := range strings.Lines(string(page)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.Contains(line, "{") {
			series, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		metric, _, _ := strings.Cut(series, "{")
		if metric != name || !strings.Contains(series, labels) {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += v
	}
	return sum
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Types that tests use.
var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes       = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	rcs         = schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"}
	volumes     = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	leases      = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	cronJobs    = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
)

var kinds = map[schema.GroupVersionResource]string{
	configMaps: "ConfigMap", secrets: "Secret", pods: "Pod", nodes: "Node", namespaces: "Namespace", rcs: "ReplicationController", volumes: "PersistentVolume",
	leases: "Lease", replicaSets: "ReplicaSet", deployments: "Deployment", jobs: "Job", cronJobs: "CronJob",
}

type thing struct {
	*unstructured.Unstructured
	typ schema.GroupVersionResource
}

func objects(t testing.TB, typ schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config())
	check(t, err)
	return client.Resource(typ).Namespace(namespace)
}

type edit func(*unstructured.Unstructured)

func create(t testing.TB, typ schema.GroupVersionResource, namespace, name string, edits ...edit) thing {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	template := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": name}},
		"spec":     map[string]any{"terminationGracePeriodSeconds": int64(0), "containers": []any{map[string]any{"name": "c", "image": "none"}}},
	}
	switch typ {
	case pods:
		o.Object["spec"] = template["spec"]
	case rcs:
		o.Object["spec"] = map[string]any{"replicas": int64(0), "selector": map[string]any{"app": name}, "template": template}
	case replicaSets, deployments:
		delete(template["spec"].(map[string]any), "terminationGracePeriodSeconds")
		o.Object["spec"] = map[string]any{"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"app": name}}, "template": template}
	case jobs, cronJobs:
		template["spec"].(map[string]any)["restartPolicy"] = "Never"
		o.Object["spec"] = map[string]any{"template": template}
		if typ == cronJobs {
			o.Object["spec"] = map[string]any{"schedule": "0 0 1 1 *", "jobTemplate": map[string]any{"spec": o.Object["spec"]}}
		}
	case volumes:
		o.Object["spec"] = map[string]any{
			"capacity": map[string]any{"storage": "1Mi"}, "accessModes": []any{"ReadWriteOnce"}, "hostPath": map[string]any{"path": "/nowhere"},
		}
	}
	o.SetAPIVersion(typ.GroupVersion().String())
	o.SetKind(kinds[typ])
	o.SetNamespace(namespace)
	o.SetName(name)
	for _, e := range edits {
		e(o)
	}
	var created *unstructured.Unstructured
	controlplane.Eventually(t, soon, func(ctx context.Context) (err error) { // a type may just have been defined
		created, err = objects(t, typ, namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	return thing{created, typ}
}

// ownedBy adds references to owners.
func ownedBy(owners ...thing) edit {
	return func(o *unstructured.Unstructured) {
		refs := o.GetOwnerReferences()
		for _, owner := range owners {
			refs = append(refs, owner.reference())
		}
		o.SetOwnerReferences(refs)
	}
}

// blockedBy adds references to owners that do not go before the object.
func blockedBy(owners ...thing) edit {
	return func(o *unstructured.Unstructured) {
		refs := o.GetOwnerReferences()
		for _, owner := range owners {
			ref := owner.reference()
			ref.BlockOwnerDeletion = new(true)
			refs = append(refs, ref)
		}
		o.SetOwnerReferences(refs)
	}
}

func refers(refs ...metav1.OwnerReference) edit {
	return func(o *unstructured.Unstructured) { o.SetOwnerReferences(append(o.GetOwnerReferences(), refs...)) }
}

func finalizedBy(finalizers ...string) edit {
	return func(o *unstructured.Unstructured) { o.SetFinalizers(finalizers) }
}

func (o thing) reference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()}
}

func (o thing) now(t testing.TB, ctx context.Context) (*unstructured.Unstructured, error) {
	t.Helper()
	got, err := objects(t, o.typ, o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case got.GetUID() != o.GetUID():
		return nil, nil
	}
	return got, nil
}

func (o thing) String() string {
	return fmt.Sprintf("%s %s/%s", o.typ.Resource, o.GetNamespace(), o.GetName())
}

func (o thing) delete(t testing.TB, policy metav1.DeletionPropagation) {
	t.Helper()
	check(t, objects(t, o.typ, o.GetNamespace()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy, GracePeriodSeconds: new(int64(0))}))
}

func (o thing) deleteIfThere(t testing.TB, policy metav1.DeletionPropagation) {
	t.Helper()
	err := objects(t, o.typ, o.GetNamespace()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// patch merges metadata.
func (o thing) patch(t testing.TB, metadata map[string]any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	check(t, err)
	_, err = objects(t, o.typ, o.GetNamespace()).Patch(cleanupContext(t), o.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	check(t, err)
}

// letGo takes all finalizers away.
func (o thing) letGo(t testing.TB) { o.patch(t, map[string]any{"finalizers": []string{}}) }

// gone waits until objects are no more.
func gone(t testing.TB, within time.Duration, all ...thing) {
	t.Helper()
	controlplane.Eventually(t, within, func(ctx context.Context) error {
		for _, o := range all {
			switch now, err := o.now(t, ctx); {
			case err != nil:
				return err
			case now != nil:
				return fmt.Errorf("%v is still there: deleted at %v, finalizers %v, owners %v", o, now.GetDeletionTimestamp(), now.GetFinalizers(), now.GetOwnerReferences())
			}
		}
		return nil
	})
}

// alive fails unless objects are there and are not being deleted.
func alive(t testing.TB, all ...thing) {
	t.Helper()
	for _, o := range all {
		now, err := o.now(t, t.Context())
		check(t, err)
		if now == nil {
			t.Errorf("%v is gone", o)
		} else if now.GetDeletionTimestamp() != nil {
			t.Errorf("%v is being deleted", o)
		}
	}
}

func owners(t testing.TB, within time.Duration, o thing, want ...thing) {
	t.Helper()
	controlplane.Eventually(t, within, func(ctx context.Context) error {
		now, err := o.now(t, ctx)
		if err != nil || now == nil {
			return errors.Join(err, fmt.Errorf("%v: %v", o, now))
		}
		var got, wanted []types.UID
		for _, r := range now.GetOwnerReferences() {
			got = append(got, r.UID)
		}
		for _, w := range want {
			wanted = append(wanted, w.GetUID())
		}
		if !slices.Equal(got, wanted) {
			return fmt.Errorf("owners of %v are %v, want %v", o, got, wanted)
		}
		return nil
	})
}

func settled(t testing.TB, namespace string) {
	t.Helper()
	owner := create(t, secrets, namespace, "probe-"+rand.String(6))
	probe := create(t, secrets, namespace, owner.GetName()+"-dependent", ownedBy(owner))
	owner.delete(t, metav1.DeletePropagationBackground)
	gone(t, soon, probe)
}

func eventsAbout(t testing.TB, ctx context.Context, o thing, reason string) (all []corev1.Event, err error) {
	t.Helper()
	list, err := cluster.Client(t).CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return nil, err
	}
	for _, e := range list.Items {
		if e.InvolvedObject.UID == o.GetUID() {
			all = append(all, e)
		}
	}
	return all, nil
}

func told(t testing.TB, within time.Duration, o thing, reason string, texts ...string) {
	t.Helper()
	controlplane.Eventually(t, within, func(ctx context.Context) error {
		all, err := eventsAbout(t, ctx, o, reason)
		if err != nil {
			return err
		}
		for _, e := range all {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(e.Message, text) }) {
				return nil
			}
		}
		return fmt.Errorf("events of %v with reason %s: %v, want one with %q", o, reason, all, texts)
	})
}

// cleanupContext is a context that outlives the test's own, for cleanups.
func cleanupContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func closedPort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
