package deploy

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
)

// kcmPort is where kube-controller-manager serves, and we by default.
const kcmPort = 10257

func staticPod(t *testing.T) *corev1.Pod {
	t.Helper()
	return convert[corev1.Pod](t, parse(t, read(t, deployDir, "static-pod", "controller-manager.yaml"))[0])
}

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	return deployments(t, render(t, "deployment"))["controller-manager"]
}

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
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
		t.Fatal(err)
	}
	return typed
}

// parseArgs gives args to the real command line and returns the flags, and the values that were given.
func parseArgs(t *testing.T, args []string) (flags *pflag.FlagSet, given map[string]string) {
	t.Helper()
	flags, given = command.New(app.Controllers()).Flags(), map[string]string{}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
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

func TestPodsFitTheProgram(t *testing.T) {
	specs := map[string]*corev1.PodSpec{"static pod": &staticPod(t).Spec, "Deployment": &deployment(t).Spec.Template.Spec}
	for name, d := range deployments(t, render(t, "two-leases")) {
		specs[name] = &d.Spec.Template.Spec
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			if len(spec.Containers) != 1 {
				t.Fatalf("%d containers, want 1", len(spec.Containers))
			}
			c := spec.Containers[0]
			flags, given := parseArgs(t, expand(t, c))
			grace := spec.TerminationGracePeriodSeconds
			complain(t, map[string]bool{
				"does not elect a leader":         flags.Lookup("leader-elect").Value.String() == "true",
				"has not the image of make image": c.Image == madeImage(t),
				"requests no resources":           !c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero(),
				"has no GOMEMLIMIT":               slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" }),
				"has less than 20 s for a drain of 10 s and the release of the lease": grace != nil && *grace >= 20,
			})
			checkProbes(t, spec, flags)
			checkSecurity(t, spec)
			checkVolumes(t, spec, given)
		})
	}
}

const nodeAddress = "192.0.2.10"

func expand(t *testing.T, c corev1.Container) (args []string) {
	t.Helper()
	for _, arg := range c.Args {
		for _, e := range c.Env {
			value := e.Value
			if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "status.hostIP" {
				value = nodeAddress
			}
			arg = strings.ReplaceAll(arg, "$("+e.Name+")", value)
		}
		if strings.Contains(arg, "$(") {
			t.Errorf("nothing gives a value to %s", arg)
		}
		args = append(args, arg)
	}
	return args
}

func madeImage(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^IMAGE \?= (\S+)$`).FindSubmatch(read(t, "..", "..", "..", "Makefile"))
	if found == nil {
		t.Fatal("Makefile has no IMAGE")
	}
	if name := string(found[1]); !strings.HasPrefix(name, "localhost/") || !strings.Contains(name, ":v") {
		t.Errorf("make image makes %s, want a name in localhost/ with a version", name)
	}
	return string(found[1])
}

func checkProbes(t *testing.T, spec *corev1.PodSpec, flags *pflag.FlagSet) {
	t.Helper()
	c := spec.Containers[0]
	address := flags.Lookup("bind-address").Value.String()
	open := flags.Lookup("authorization-always-allow-paths").Value.String()
	for path, probes := range map[string][]*corev1.Probe{"/livez": {c.StartupProbe, c.LivenessProbe}, "/readyz": {c.ReadinessProbe}} {
		for _, p := range probes {
			if p == nil || p.HTTPGet == nil {
				t.Errorf("a probe of %s is missing", path)
				continue
			}
			get := p.HTTPGet
			if get.Path != path || get.Scheme != corev1.URISchemeHTTPS || !strings.Contains(open, path) {
				t.Errorf("probe asks %s %s, want HTTPS %s, which must be in --authorization-always-allow-paths=%s", get.Scheme, get.Path, path, open)
			}
			if get.Port != intstr.FromString("https") {
				t.Errorf("probe asks port %v, want https", get.Port)
			}
			if loopback := net.ParseIP(address).IsLoopback(); loopback && get.Host != address || !loopback && get.Host != "" {
				t.Errorf("probe asks host %q, but --bind-address is %s", get.Host, address)
			}
		}
	}
	if len(c.Ports) != 1 || c.Ports[0].Name != "https" {
		t.Fatalf("ports are %v, want one named https", c.Ports)
	}
	if got, want := intstr.FromInt32(c.Ports[0].ContainerPort), intstr.Parse(flags.Lookup("secure-port").Value.String()); got != want {
		t.Errorf("container port %v, but --secure-port=%v", got.String(), want.String())
	}
	if spec.HostNetwork && c.Ports[0].ContainerPort == kcmPort {
		t.Errorf("port %d on the host's network is kube-controller-manager's", kcmPort)
	}
}

func checkSecurity(t *testing.T, spec *corev1.PodSpec) {
	t.Helper()
	pod, c := spec.SecurityContext, spec.Containers[0].SecurityContext
	if pod == nil || c == nil {
		t.Fatal("no security context")
	}
	complain(t, map[string]bool{
		"runs as root":                  pod.RunAsNonRoot != nil && *pod.RunAsNonRoot && pod.RunAsUser != nil && *pod.RunAsUser > 0 && pod.RunAsGroup != nil && *pod.RunAsGroup > 0,
		"has no seccomp profile":        pod.SeccompProfile != nil && pod.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"may write its root filesystem": c.ReadOnlyRootFilesystem != nil && *c.ReadOnlyRootFilesystem,
		"may gain privileges":           c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation,
		"keeps capabilities":            c.Capabilities != nil && slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(c.Capabilities.Add) == 0,
		"has no system priority":        strings.HasPrefix(spec.PriorityClassName, "system-"),
	})
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

func checkVolumes(t *testing.T, spec *corev1.PodSpec, given map[string]string) {
	t.Helper()
	named := map[string]bool{}
	for _, value := range given {
		if filepath.IsAbs(value) {
			named[value] = true
		}
	}
	for _, m := range spec.Containers[0].VolumeMounts {
		if !m.ReadOnly {
			t.Errorf("%s is mounted for writing", m.MountPath)
		}
		if !named[m.MountPath] {
			t.Errorf("%s is mounted and no flag names it", m.MountPath)
		}
		delete(named, m.MountPath)
	}
	for path := range named {
		t.Errorf("%s is named by a flag and not mounted", path)
	}
}

func TestStaticPodIsOne(t *testing.T) {
	pod := staticPod(t)
	flags, _ := parseArgs(t, expand(t, pod.Spec.Containers[0]))
	complain(t, map[string]bool{
		"cannot read the file of kubeconfig.sh":        bytes.Contains(read(t, deployDir, "static-pod", "kubeconfig.sh"), fmt.Appendf(nil, "group=%d ", *pod.Spec.SecurityContext.RunAsGroup)),
		"does not listen where Prometheus looks":       flags.Lookup("bind-address").Value.String() == nodeAddress,
		"waits for a network plugin":                   pod.Spec.HostNetwork,
		"has not the priority of system-node-critical": pod.Spec.Priority != nil && *pod.Spec.Priority == 2000001000,
		"is not among the control plane's pods":        pod.Namespace == "kube-system" && pod.Labels["tier"] == "control-plane",
		"has a service account, as no static pod can":  pod.Spec.ServiceAccountName == "" && pod.Spec.AutomountServiceAccountToken != nil && !*pod.Spec.AutomountServiceAccountToken,
	})
	for _, v := range pod.Spec.Volumes {
		if v.HostPath == nil {
			t.Errorf("volume %s is not from the host", v.Name)
		}
	}
}

func TestDeploymentHasAStandby(t *testing.T) {
	for dir, count := range map[string]int{"deployment": 1, "two-leases": 2} {
		found := deployments(t, render(t, dir))
		if len(found) != count {
			t.Errorf("%s has %d Deployments, want %d", dir, len(found), count)
		}
		for name, d := range found {
			t.Run(name, func(t *testing.T) { checkStandby(t, d) })
		}
	}
}

func checkStandby(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
		if !maps.Equal(c.LabelSelector.MatchLabels, d.Spec.Template.Labels) || !maps.Equal(d.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
			t.Errorf("it keeps apart pods labelled %v, its own are labelled %v", c.LabelSelector.MatchLabels, d.Spec.Template.Labels)
		}
		if c.MinDomains == nil || *c.MinDomains != 2 || !slices.Equal(c.MatchLabelKeys, []string{appsv1.DefaultDeploymentUniqueLabelKey}) ||
			c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy != corev1.NodeInclusionPolicyHonor {
			t.Errorf("replicas share a node, or the new ones of a rollout count the old ones: %v", c)
		}
	}
	if n := len(d.Spec.Template.Spec.TopologySpreadConstraints); n != 1 {
		t.Errorf("%d topology spread constraints, want 1", n)
	}
	var tolerated []string
	for _, to := range d.Spec.Template.Spec.Tolerations {
		if tolerated = append(tolerated, to.Key+":"+string(to.Effect)); to.Operator != corev1.TolerationOpExists || to.Effect == corev1.TaintEffectNoExecute && *to.TolerationSeconds != 60 {
			t.Errorf("toleration %v", to)
		}
	}
	if want := []string{"node-role.kubernetes.io/control-plane:NoSchedule", corev1.TaintNodeNotReady + ":NoSchedule", corev1.TaintNodeUnreachable + ":NoSchedule",
		corev1.TaintNodeNotReady + ":NoExecute", corev1.TaintNodeUnreachable + ":NoExecute"}; !slices.Equal(tolerated, want) {
		t.Errorf("tolerations %v, want %v", tolerated, want)
	}
	u := d.Spec.Strategy.RollingUpdate
	complain(t, map[string]bool{
		"has not two replicas":                               d.Spec.Replicas != nil && *d.Spec.Replicas == 2,
		"would wait for ever where only one node fits":       u != nil && u.MaxUnavailable != nil && u.MaxUnavailable.String() == "1",
		"does not run as the service account of deploy/rbac": d.Spec.Template.Spec.ServiceAccountName == "controller-manager" && d.Namespace == "kube-system",
	})
}

// TestContainerfile requires the program and the user of the manifests.
func TestContainerfile(t *testing.T) {
	text := string(read(t, deployDir, "Containerfile"))
	for _, want := range []string{"FROM scratch\n", "USER 65532:65532\n", `ENTRYPOINT ["/controller-manager"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("Containerfile lacks %q", want)
		}
	}
	if info, err := os.Stat(filepath.Join(deployDir, "static-pod", "kubeconfig.sh")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("kubeconfig.sh cannot be run: %v", err)
	}
}
