// Package deployment tests the Deployment controller together with the ReplicaSet controller on a real API server:
// rollouts as users see them, and the promises with lost responses, late statuses and killed processes.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

const (
	// patience is for things that take milliseconds on an idle machine.
	patience = 40 * time.Second
	// agent ends the user agent of the controller, in our manager as in kube-controller-manager.
	agent = "deployment-controller"
	// revisionKey is the annotation with the revision.
	revisionKey = "deployment.kubernetes.io/revision"
)

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{AuditPolicy: controlplane.LeaseAuditPolicy}, func(c *controlplane.Cluster) { cluster = c }))
}

// TestRollouts runs the tests that share one manager, in parallel.
func TestRollouts(t *testing.T) {
	m := start(t, "shared")
	for name, run := range map[string]func(*testing.T, *manager){
		"Conflicts": testUndisturbedWorkMeetsNoConflict, "TurnedRound": testTurnedRoundRolloutKeepsItsPromise, "FailedWrites": testFailedWrites,
		"SlowAdmission": testSlowAdmissionHoldsUpNoOtherDeployment,
		"Kubectl":       testKubectlRollout,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, m)
		})
	}
}

type manager struct {
	*controlplane.Process
	proxy *faults.Proxy
}

// start starts a manager with the rights of deploy/rbac for the two controllers alone. At the end of the test the
// manager has to stop without an error, unless the test has killed the manager.
func start(t *testing.T, name string, more ...string) *manager {
	t.Helper()
	if len(more) == 0 {
		more = []string{"--leader-elect=false"}
	}
	proxy := faults.New(t, cluster.ManagerConfig(name, "deployment-controller", "replicaset-controller"), faults.WithName(name))
	m := &manager{controlplane.StartProcess(t, append(slices.Clone(more), "--kubeconfig="+cluster.KubeconfigFor(t, proxy.Config()),
		"--controllers=deployment-controller,replicaset-controller", "--secure-port=0", "-v=2")...), proxy}
	t.Cleanup(func() {
		select {
		case <-m.Done():
		default:
			m.stop(t)
		}
	})
	return m
}

func (m *manager) stop(t *testing.T) {
	t.Helper()
	_ = m.Signal(syscall.SIGTERM)
	m.EndsWith(t, 0)
}

type namespace struct {
	t       testing.TB
	name    string
	client  kubernetes.Interface
	kubelet *controlplane.Kubelet
}

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{t: t, name: cluster.Namespace(t), client: cluster.Client(t)}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var err error
	n.kubelet, err = controlplane.StartKubelet(ctx, n.client, n.name)
	controlplane.Must(t, err)
	return n
}

// apply creates the Deployment web, with images of the tag v1.
func (n *namespace) apply(replicas int32, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	n.t.Helper()
	return n.applyNamed("web", replicas, edits...)
}

func (n *namespace) applyNamed(name string, replicas int32, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	n.t.Helper()
	d := controlplane.Deployment(n.name, name, replicas, append([]func(*appsv1.Deployment){image("v1")}, edits...)...)
	d, err := n.client.AppsV1().Deployments(n.name).Create(n.t.Context(), d, metav1.CreateOptions{})
	controlplane.Must(n.t, err)
	return d
}

func image(tag string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/web:" + tag }
}

func imageOf(template *corev1.PodTemplateSpec) string { return template.Spec.Containers[0].Image }

func tagged(tag string) func(*corev1.Pod) bool { return controlplane.Image("example.com/web:" + tag) }

// rolling sets the bounds of the rolling update, as numbers or percentages.
func rolling(surge, unavailable string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		s, u := intstr.Parse(surge), intstr.Parse(unavailable)
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u},
		}
	}
}

func recreate(d *appsv1.Deployment) {
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
}

func replicas(count int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Replicas = &count }
}

func paused(is bool) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Paused = is }
}

func deadline(seconds int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = &seconds }
}

func (n *namespace) edit(changes ...func(*appsv1.Deployment)) {
	n.t.Helper()
	controlplane.Edit(n.t, n.client.AppsV1().Deployments(n.name), "web", changes...)
}

// sets lists the ReplicaSets of a Deployment, the lowest revision first.
func (n *namespace) sets(ctx context.Context, d *appsv1.Deployment) ([]appsv1.ReplicaSet, error) {
	list, err := n.client.AppsV1().ReplicaSets(n.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	owned := slices.DeleteFunc(list.Items, func(s appsv1.ReplicaSet) bool { return !metav1.IsControlledBy(&s, d) })
	slices.SortStableFunc(owned, func(a, b appsv1.ReplicaSet) int { return revision(&a) - revision(&b) })
	return owned, nil
}

func revision(o metav1.Object) int {
	r, _ := strconv.Atoi(o.GetAnnotations()[revisionKey])
	return r
}

// templateOf returns the template without the label pod-template-hash.
func templateOf(s *appsv1.ReplicaSet) *corev1.PodTemplateSpec {
	template := s.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return template
}

// set waits until the ReplicaSet of an image tag has a size.
func (n *namespace) set(tag string, size int32) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		list, err := n.client.AppsV1().ReplicaSets(n.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		text := ""
		for i := range list.Items {
			if s := &list.Items[i]; imageOf(&s.Spec.Template) == "example.com/web:"+tag {
				text += fmt.Sprintf(" %s asks for %d", s.Name, *s.Spec.Replicas)
				if *s.Spec.Replicas == size {
					return nil
				}
			}
		}
		return fmt.Errorf("no ReplicaSet of %s asks for %d:%s", tag, size, text)
	})
}

func (n *namespace) complete() (*appsv1.Deployment, *appsv1.ReplicaSet) {
	n.t.Helper()
	return n.completeNamed("web")
}

func (n *namespace) completeNamed(name string) (d *appsv1.Deployment, s *appsv1.ReplicaSet) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) (err error) {
		d, s, err = n.completed(ctx, name)
		return err
	})
	return d, s
}

func (n *namespace) completed(ctx context.Context, name string) (*appsv1.Deployment, *appsv1.ReplicaSet, error) {
	d, err := n.client.AppsV1().Deployments(n.name).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	sets, err := n.sets(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	want, status := *d.Spec.Replicas, d.Status
	if status.ObservedGeneration < d.Generation || status.UpdatedReplicas != want || status.Replicas != want || status.AvailableReplicas != want {
		return nil, nil, fmt.Errorf("rollout of %d replicas at generation %d is not complete: %+v", want, d.Generation, status)
	}
	var mine *appsv1.ReplicaSet
	for i := range sets {
		size := int32(0)
		if equality.Semantic.DeepEqual(templateOf(&sets[i]), &d.Spec.Template) {
			mine, size = &sets[i], want
		}
		if got := *sets[i].Spec.Replicas; got != size {
			return nil, nil, fmt.Errorf("ReplicaSet %s asks for %d pods, want %d", sets[i].Name, got, size)
		}
	}
	if mine == nil {
		return nil, nil, errors.New("the Deployment has no ReplicaSet of its template")
	}
	if d.Annotations[revisionKey] != mine.Annotations[revisionKey] {
		return nil, nil, fmt.Errorf("revision of the Deployment is %q, that of its ReplicaSet %q", d.Annotations[revisionKey], mine.Annotations[revisionKey])
	}
	return d, mine, nil
}

// status waits until the status of the Deployment is as wanted.
func (n *namespace) status(want func(appsv1.DeploymentStatus) bool) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		d, err := n.client.AppsV1().Deployments(n.name).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation || !want(d.Status) {
			return fmt.Errorf("at generation %d status is %+v", d.Generation, d.Status)
		}
		return nil
	})
}

// observed waits until the controller has acted on the spec.
func (n *namespace) observed() {
	n.t.Helper()
	n.status(func(appsv1.DeploymentStatus) bool { return true })
}

// shown waits until the controller's cache has every earlier change: the controller has made a ReplicaSet for a later
// Deployment.
func (n *namespace) shown() {
	n.t.Helper()
	n.applyNamed("witness", 0)
	n.completeNamed("witness")
}

// pods lists the pods of the namespace.
func (n *namespace) pods() []corev1.Pod {
	n.t.Helper()
	list, err := n.client.CoreV1().Pods(n.name).List(n.t.Context(), metav1.ListOptions{})
	controlplane.Must(n.t, err)
	return list.Items
}

func (n *namespace) eventually(check func(context.Context) error) {
	n.t.Helper()
	controlplane.Eventually(n.t, patience, check)
}

// on matches requests of the Deployment controller in the namespace.
func (n *namespace) on(verbs, resource string) faults.Match {
	return faults.Match{Verbs: verbs, Resource: resource, Namespace: n.name, UserAgent: agent}
}

// requests returns the requests of the Deployment controller in the namespace.
func (n *namespace) requests(m *manager) []faults.Request {
	return slices.DeleteFunc(m.proxy.Requests(), func(r faults.Request) bool { return r.Namespace != n.name || !strings.HasSuffix(r.UserAgent, agent) })
}
