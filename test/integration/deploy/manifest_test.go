package deploy

import (
	"net"
	"os"
	"path/filepath"
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
)

// kcmPort is where kube-controller-manager serves, and we by default.
const kcmPort = 10257

func staticPod(t *testing.T) *corev1.Pod {
	t.Helper()
	return convert[corev1.Pod](t, parse(t, read(t, deployDir, "static-pod", "controller-manager.yaml"))[0])
}

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	for _, o := range render(t, "deployment") {
		if o.GetKind() == "Deployment" {
			return convert[appsv1.Deployment](t, o)
		}
	}
	t.Fatal("deploy/deployment has no Deployment")
	return nil
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
	flags, given = app.NewCommand().Flags(), map[string]string{}
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

// What kubeadm's tests of its manifests check, and what ours promises on top.
func TestPodsFitTheProgram(t *testing.T) {
	for name, spec := range map[string]*corev1.PodSpec{"static pod": &staticPod(t).Spec, "Deployment": &deployment(t).Spec.Template.Spec} {
		t.Run(name, func(t *testing.T) {
			if len(spec.Containers) != 1 {
				t.Fatalf("%d containers, want 1", len(spec.Containers))
			}
			c := spec.Containers[0]
			flags, given := parseArgs(t, c.Args)
			if flags.Lookup("leader-elect").Value.String() != "true" {
				t.Error("there may be several, so they must elect")
			}
			checkProbes(t, spec, flags)
			checkSecurity(t, spec)
			checkVolumes(t, spec, given)
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
				t.Error("no resources requested")
			}
			if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" }) {
				t.Error("GOMEMLIMIT is not set")
			}
			if grace := spec.TerminationGracePeriodSeconds; grace == nil || *grace < 20 {
				t.Error("a drain of 10 s and the release of the lease need 20 s to end in order")
			}
		})
	}
}

// checkProbes shows that each probe asks a path that needs no credentials, at the port and address where the program listens.
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
	for what, ok := range map[string]bool{
		"runs as root":                  pod.RunAsNonRoot != nil && *pod.RunAsNonRoot && pod.RunAsUser != nil && *pod.RunAsUser > 0 && pod.RunAsGroup != nil && *pod.RunAsGroup > 0,
		"has no seccomp profile":        pod.SeccompProfile != nil && pod.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"may write its root filesystem": c.ReadOnlyRootFilesystem != nil && *c.ReadOnlyRootFilesystem,
		"may gain privileges":           c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation,
		"keeps capabilities":            c.Capabilities != nil && slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(c.Capabilities.Add) == 0,
		"has no system priority":        strings.HasPrefix(spec.PriorityClassName, "system-"),
	} {
		if !ok {
			t.Errorf("the container %s", what)
		}
	}
}

// checkVolumes shows that every file a flag names is mounted, and nothing else.
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
	if !pod.Spec.HostNetwork {
		t.Error("a control plane pod must not wait for a network plugin")
	}
	if pod.Spec.Priority == nil || *pod.Spec.Priority != 2000001000 {
		t.Error("priority is not that of system-node-critical")
	}
	if pod.Namespace != "kube-system" || pod.Labels["tier"] != "control-plane" {
		t.Error("it is not among the control plane's pods")
	}
	if pod.Spec.ServiceAccountName != "" || pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
		t.Error("a static pod cannot have a service account")
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath == nil {
			t.Errorf("volume %s is not from the host", v.Name)
		}
	}
}

func TestDeploymentHasAStandby(t *testing.T) {
	d := deployment(t)
	if d.Spec.Replicas == nil || *d.Spec.Replicas != 2 {
		t.Error("want two replicas")
	}
	if d.Spec.Template.Spec.ServiceAccountName != "controller-manager" || d.Namespace != "kube-system" {
		t.Error("it does not run as the service account of deploy/rbac")
	}
}

// The container file starts what the pods give arguments to, as the user they demand.
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
