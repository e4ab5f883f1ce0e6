package deploy

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
	"minikcm/test/controlplane"
)

func deployments(t *testing.T, objects []*unstructured.Unstructured) map[string]*appsv1.Deployment {
	t.Helper()
	found := map[string]*appsv1.Deployment{}
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			found[o.GetName()] = convert[appsv1.Deployment](t, o)
		}
	}
	if len(found) == 0 {
		t.Fatal("there is no Deployment")
	}
	return found
}

func convert[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	controlplane.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true))
	return typed
}

// parseArgs gives args to the real command line and returns the flags, and the values that were given.
func parseArgs(t *testing.T, args []string) (flags *pflag.FlagSet, given map[string]string) {
	t.Helper()
	flags, given = command.New(app.Controllers()).Flags(), map[string]string{}
	controlplane.Must(t, flags.Parse(args))
	if flags.NArg() > 0 {
		t.Errorf("arguments that are no flags: %v", flags.Args())
	}
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "unused" {
			t.Errorf("--%s means nothing here", f.Name)
		}
		given[f.Name] = f.Value.String()
	})
	return flags, given
}

// enabled returns the controllers that a Deployment runs.
func enabled(t *testing.T, d *appsv1.Deployment) []string {
	t.Helper()
	flags, _ := parseArgs(t, d.Spec.Template.Spec.Containers[0].Args)
	items, err := flags.GetStringSlice("controllers")
	controlplane.Must(t, err)
	running, err := app.ControllersNamed(items...)
	controlplane.Must(t, err)
	return sortedNames(running)
}

func TestStaticPod(t *testing.T) {
	const kubeconfig = "/etc/kubernetes/minikcm.conf"
	pod := convert[corev1.Pod](t, parse(t, read(t, deployDir, "static-pod", "controller-manager.yaml"))[0])
	given := checkPod(t, &pod.Spec)
	for _, flag := range []string{"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"} {
		fakeapi.Want(t, "--"+flag, given[flag], kubeconfig)
	}
	mounts := []corev1.VolumeMount{{Name: "kubeconfig", MountPath: kubeconfig, ReadOnly: true}}
	fakeapi.WantEqual(t, "mounts", pod.Spec.Containers[0].VolumeMounts, mounts)
	if v := pod.Spec.Volumes; len(v) != 1 || v[0].HostPath == nil || v[0].HostPath.Path != kubeconfig {
		t.Errorf("volumes %v, want the kubeconfig of the host", v)
	}
	script := read(t, deployDir, "static-pod", "kubeconfig.sh")
	complain(t, map[string]bool{
		"cannot read the file of kubeconfig.sh":        bytes.Contains(script, fmt.Appendf(nil, "group=%d ", *pod.Spec.SecurityContext.RunAsGroup)),
		"cannot start before the node has an address":  given["bind-address"] == "",
		"takes the port of kube-controller-manager":    given["secure-port"] != "10257",
		"waits for a network plugin":                   pod.Spec.HostNetwork,
		"has not the priority of system-node-critical": pod.Spec.Priority != nil && *pod.Spec.Priority == 2000001000,
		"is not among the control plane's pods":        pod.Namespace == "kube-system" && pod.Labels["tier"] == "control-plane",
		"has a service account, as no static pod can":  pod.Spec.ServiceAccountName == "" && pod.Spec.AutomountServiceAccountToken != nil && !*pod.Spec.AutomountServiceAccountToken,
	})
}

func TestDeployments(t *testing.T) {
	for dir, count := range map[string]int{"deployment": 1, "two-leases": 2} {
		found := deployments(t, render(t, dir))
		fakeapi.Want(t, "Deployments of "+dir, len(found), count)
		for name, d := range found {
			t.Run(name, func(t *testing.T) {
				checkPod(t, &d.Spec.Template.Spec)
				checkStandby(t, d)
			})
		}
	}
}

// checkPod requires a pod that fits the program, and returns the flags that are given.
func checkPod(t *testing.T, spec *corev1.PodSpec) (given map[string]string) {
	t.Helper()
	if len(spec.Containers) != 1 {
		t.Fatalf("%d containers, want 1", len(spec.Containers))
	}
	c := spec.Containers[0]
	flags, given := parseArgs(t, c.Args)
	image := regexp.MustCompile(`(?m)^IMAGE \?= (localhost/\S+:v\S+)$`).FindSubmatch(read(t, "..", "..", "..", "Makefile"))
	grace := spec.TerminationGracePeriodSeconds
	port := intstr.Parse(flags.Lookup("secure-port").Value.String())
	complain(t, map[string]bool{
		"does not elect a leader":         flags.Lookup("leader-elect").Value.String() == "true",
		"has not the image of make image": image != nil && c.Image == string(image[1]),
		"requests no resources":           !c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero(),
		"has no GOMEMLIMIT":               slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" }),
		"has less than 20 s for a drain of 10 s and the release of the lease": grace != nil && *grace >= 20,
		"listens where no probe asks":                                         !net.ParseIP(flags.Lookup("bind-address").Value.String()).IsLoopback(),
		"has not one port named https, that of --secure-port":                 len(c.Ports) == 1 && c.Ports[0].Name == "https" && intstr.FromInt32(c.Ports[0].ContainerPort) == port,
		"has no system priority":                                              strings.HasPrefix(spec.PriorityClassName, "system-"),
	})
	for path, probes := range map[string][]*corev1.Probe{"/livez": {c.StartupProbe, c.LivenessProbe}, "/readyz": {c.ReadinessProbe}} {
		want := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Path: path, Port: intstr.FromString("https")}}
		for _, p := range probes {
			fakeapi.WantEqual(t, "probe", p.ProbeHandler, want)
		}
		fakeapi.WantPart(t, "--authorization-always-allow-paths", flags.Lookup("authorization-always-allow-paths").Value.String(), path)
	}
	container := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	fakeapi.WantEqual(t, "security context of the container", c.SecurityContext, container)
	user := spec.SecurityContext.RunAsUser
	pod := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: user, RunAsGroup: user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	fakeapi.WantEqual(t, "security context of the pod", spec.SecurityContext, pod)
	if user == nil || *user == 0 {
		t.Error("the pod runs as root")
	}
	return given
}

// complain reports the keys whose values are false.
func complain(t *testing.T, isGood map[string]bool) {
	t.Helper()
	for what, good := range isGood {
		if !good {
			t.Errorf("it %s", what)
		}
	}
}

func checkStandby(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	// Replicas share no node, but new replicas of a rollout may share nodes with old replicas.
	spread := []corev1.TopologySpreadConstraint{{
		TopologyKey: corev1.LabelHostname, MaxSkew: 1, MinDomains: new(int32(2)), WhenUnsatisfiable: corev1.DoNotSchedule, NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor),
		LabelSelector: &metav1.LabelSelector{MatchLabels: d.Spec.Template.Labels}, MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
	}}
	toleration := func(key string, effect corev1.TaintEffect, seconds *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect, TolerationSeconds: seconds}
	}
	tolerations := []corev1.Toleration{
		toleration("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule, nil),
		toleration(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule, nil), toleration(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, nil),
		toleration(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute, new(int64(60))), toleration(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, new(int64(60))),
	}
	spec := d.Spec.Template.Spec
	fakeapi.WantEqual(t, "topology spread", spec.TopologySpreadConstraints, spread)
	fakeapi.WantEqual(t, "tolerations", spec.Tolerations, tolerations)
	fakeapi.WantEqual(t, "selector", d.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
	u := d.Spec.Strategy.RollingUpdate
	complain(t, map[string]bool{
		"has not two replicas":                               d.Spec.Replicas != nil && *d.Spec.Replicas == 2,
		"would wait for ever where only one node fits":       u != nil && u.MaxUnavailable != nil && u.MaxUnavailable.String() == "1",
		"does not run as the service account of deploy/rbac": spec.ServiceAccountName == "controller-manager" && d.Namespace == "kube-system",
		"mounts a volume":                                    len(spec.Volumes) == 0,
	})
}

// TestContainerfile requires the program and the user of the manifests.
func TestContainerfile(t *testing.T) {
	text := string(read(t, filepath.Join(deployDir, "Containerfile")))
	for _, want := range []string{"FROM scratch\n", "USER 65532:65532\n", `ENTRYPOINT ["/controller-manager"]`} {
		fakeapi.WantPart(t, "Containerfile", text, want)
	}
}
