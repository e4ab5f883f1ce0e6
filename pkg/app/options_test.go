package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"

	"minikcm/pkg/leadership"
)

// parsed returns the options that a command line gives, with gates set.
func parsed(t *testing.T, args ...string) *Options {
	t.Helper()
	o := NewOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	sections := o.Flags()
	for _, name := range sections.Order {
		fs.AddFlagSet(sections.FlagSets[name])
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.gates.set(); err != nil {
		t.Fatal(err)
	}
	return o
}

// minimalKubeconfig writes a kubeconfig that names a server and nothing else.
func minimalKubeconfig(t *testing.T) string {
	t.Helper()
	return writeFile(t, "kubeconfig", []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x",
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`))
}

// What can be compared of a Config: what is new in each process is left out, and flags are functions.
var comparable = cmp.Options{
	cmpopts.IgnoreFields(leadership.Config{}, "Identity"),
	cmpopts.IgnoreFields(rest.Config{}, "UserAgent"),
	cmpopts.IgnoreFields(ServingConfig{}, "Flags"),
	cmpopts.IgnoreUnexported(rest.Config{}),
}

func TestDefaults(t *testing.T) {
	o := parsed(t, "--kubeconfig="+minimalKubeconfig(t))
	if errs := o.Validate(); len(errs) > 0 {
		t.Fatalf("defaults are not valid: %v", errs)
	}
	got, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Controllers: []string{"replicaset-controller", "node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller", "namespace-controller"},
		REST: &rest.Config{
			Host: "https://127.0.0.1:1", QPS: -1, Burst: 30, DisableCompression: true,
			ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"},
		},
		MinResync: 12 * time.Hour,
		Election: leadership.Config{
			Enabled: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Namespace: "kube-system", Name: "controller-manager", ShutdownTimeout: 10 * time.Second,
		},
		Promises: Promises{WarmStandby: true, FencedWrites: true, LeaseWatch: true, WatchLiveness: true, VerifyFirstWrite: true},
		Serving: ServingConfig{
			Address: "0.0.0.0:10257", Port: 10257,
			TLS: TLSConfig{MinVersion: tls.VersionTLS12},
			Authentication: AuthenticationOptions{
				TokenCacheTTL: 10 * time.Second,
				RequestHeader: RequestHeaderOptions{
					UsernameHeaders: []string{"x-remote-user"}, GroupHeaders: []string{"x-remote-group"}, ExtraHeaderPrefixes: []string{"x-remote-extra-"},
				},
			},
			Authorization: AuthorizationOptions{
				AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"}, AllowedTTL: 10 * time.Second, DeniedTTL: 10 * time.Second,
			},
			ReviewRetry: wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5},
			Profiling:   true, Flagz: true, Statusz: true, EmulationVersion: "1.37",
		},
		ReplicaSet: ReplicaSetConfig{Workers: 5, PodDeletionCost: true, ReportTerminatingReplicas: true},
		NodeLifecycle: NodeLifecycleConfig{
			MonitorPeriod: 5 * time.Second, MonitorGracePeriod: 50 * time.Second, StartupGracePeriod: time.Minute,
			EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeClusterSizeThreshold: 50, UnhealthyZoneThreshold: 0.55,
		},
		PodGC:     PodGCConfig{TerminatedPodThreshold: 12500},
		Namespace: NamespaceConfig{Workers: 10, SyncPeriod: 5 * time.Minute, DeletionGracePeriod: 5 * time.Second},
	}
	if diff := cmp.Diff(want, got, comparable); diff != "" {
		t.Errorf("configuration of the defaults (-want +got):\n%s", diff)
	}
	if id := got.Election.Identity; !strings.Contains(id, "_") {
		t.Errorf("identity %q, want host name and a unique part", id)
	}
}

// Every flag of the configuration, each at a value that is not its default, reaches its place unchanged.
func TestFlagsReachConfig(t *testing.T) {
	file := minimalKubeconfig(t)
	o := parsed(t,
		"--kubeconfig="+file, "--master=https://10.0.0.1:6443",
		"--profiling=false", "--contention_profiling=true",
		"--controllers=*,-podgc,-nodelifecycle", "--min-resync-period=8h", "--controller-start-interval=2m", "--controller-shutdown-timeout=1h",
		"--kube-api-qps=50", "--kube-api-burst=100", "--kube-api-content-type=application/json",
		"--leader-elect=false", "--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=15s", "--leader-elect-retry-period=5s",
		"--leader-elect-resource-name=name", "--leader-elect-resource-namespace=ns", "--leader-elect-warm-standby=false",
		"--feature-gates=PodDeletionCost=false,FencedWrites=false", "--feature-gates=LeaseWatch=false,WatchLiveness=false,VerifyFirstWrite=false",
		"--feature-gates=DeploymentReplicaSetTerminatingReplicas=false,ComponentFlagz=false,ComponentStatusz=false", "--emulated-version=1.36",
		"--bind-address=192.168.4.10", "--secure-port=10001", "--permit-port-sharing", "--permit-address-sharing",
		"--cert-dir=/a/b/c", "--tls-cert-file=/c.crt", "--tls-private-key-file=/c.key", "--tls-sni-cert-key=/s.crt,/s.key:*.foo.com,foo.com",
		"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "--tls-curve-preferences=23,29", "--tls-min-version=VersionTLS13",
		"--http2-max-streams-per-connection=47", "--disable-http2-serving",
		"--authentication-kubeconfig=/authn", "--authentication-skip-lookup", "--authentication-tolerate-lookup-failure",
		"--authentication-token-webhook-cache-ttl=1s", "--client-ca-file=/ca",
		"--requestheader-client-ca-file=/rh", "--requestheader-allowed-names=a,b", "--requestheader-username-headers=u",
		"--requestheader-uid-headers=i", "--requestheader-group-headers=g", "--requestheader-extra-headers-prefix=e",
		"--authorization-kubeconfig=/authz", "--authorization-always-allow-paths=/x,/y/*",
		"--authorization-webhook-cache-authorized-ttl=2s", "--authorization-webhook-cache-unauthorized-ttl=3s",
		"--concurrent-replicaset-syncs=6", "--concurrent-namespace-syncs=7", "--namespace-sync-period=10m", "--namespace-deletion-grace-period=0",
		"--node-monitor-period=10s", "--node-monitor-grace-period=30s", "--node-startup-grace-period=30s", "--node-eviction-rate=0.2",
		"--secondary-node-eviction-rate=0.05", "--large-cluster-size-threshold=100", "--unhealthy-zone-threshold=0.6", "--terminated-pod-gc-threshold=12000",
	)
	if errs := o.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	got, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Controllers:   []string{"replicaset-controller", "taint-eviction-controller", "namespace-controller"},
		REST:          &rest.Config{Host: "https://10.0.0.1:6443", QPS: 50, Burst: 100, DisableCompression: true, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}},
		MinResync:     8 * time.Hour,
		StartInterval: 2 * time.Minute,
		Election: leadership.Config{
			LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 5 * time.Second,
			Namespace: "ns", Name: "name", ShutdownTimeout: time.Hour,
		},
		Serving: ServingConfig{
			Address: "192.168.4.10:10001", Port: 10001, SharePort: true, ShareAddresses: true,
			TLS: TLSConfig{
				CertDir: "/a/b/c", CertFile: "/c.crt", KeyFile: "/c.key",
				SNI:        []cliflag.NamedCertKey{{CertFile: "/s.crt", KeyFile: "/s.key", Names: []string{"*.foo.com", "foo.com"}}},
				MinVersion: tls.VersionTLS13, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
				Curves: []tls.CurveID{tls.CurveP256, tls.X25519}, HTTP2Streams: 47, DisableHTTP2: true,
			},
			Authentication: AuthenticationOptions{
				Kubeconfig: "/authn", SkipLookup: true, TolerateLookupFailure: true, TokenCacheTTL: time.Second, ClientCAFile: "/ca",
				RequestHeader: RequestHeaderOptions{
					ClientCAFile: "/rh", AllowedNames: []string{"a", "b"}, UsernameHeaders: []string{"u"}, UIDHeaders: []string{"i"},
					GroupHeaders: []string{"g"}, ExtraHeaderPrefixes: []string{"e"},
				},
			},
			Authorization:    AuthorizationOptions{Kubeconfig: "/authz", AlwaysAllowPaths: []string{"/x", "/y/*"}, AllowedTTL: 2 * time.Second, DeniedTTL: 3 * time.Second},
			ReviewRetry:      wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5},
			EmulationVersion: "1.36",
		},
		ReplicaSet: ReplicaSetConfig{Workers: 6},
		NodeLifecycle: NodeLifecycleConfig{
			MonitorPeriod: 10 * time.Second, MonitorGracePeriod: 30 * time.Second, StartupGracePeriod: 30 * time.Second,
			EvictionRate: 0.2, SecondaryEvictionRate: 0.05, LargeClusterSizeThreshold: 100, UnhealthyZoneThreshold: 0.6,
		},
		PodGC:     PodGCConfig{TerminatedPodThreshold: 12000},
		Namespace: NamespaceConfig{Workers: 7, SyncPeriod: 10 * time.Minute},
	}
	if diff := cmp.Diff(want, got, comparable); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		args string   // separated by blanks
		want []string // each the beginning of one problem, in order; empty: valid
	}{
		{"", nil},
		{"--controllers=", nil},
		{"--controllers=-replicaset", nil},
		{"--controllers=foo,-bar,-*,podgc", []string{`--controllers: "foo" is not in the list of known controllers, "bar" is not in the list of known controllers, "*" is not in the list of known controllers; known are replicaset-controller (replicaset), `}},
		{"--min-resync-period=0", []string{"--min-resync-period: 0s is not greater than zero"}},
		{"--controller-start-interval=-1s", []string{"--controller-start-interval: -1s is negative"}},
		{"--controller-shutdown-timeout=-1s", []string{"--controller-shutdown-timeout: -1s is negative"}},
		{"--controller-shutdown-timeout=0", nil},
		{"--kube-api-qps=0", []string{"--kube-api-qps: 0 would send nothing"}},
		{"--kube-api-qps=NaN", []string{"--kube-api-qps: NaN is not a rate"}},
		{"--kube-api-qps=20 --kube-api-burst=0", []string{"--kube-api-burst: 0 is less than 1"}},
		{"--kube-api-burst=0", nil},
		{"--kube-api-burst=-1", []string{"--kube-api-burst: -1 is negative"}},
		{"--kube-api-content-type=text/xml", []string{`--kube-api-content-type: "text/xml" is neither`}},
		{"--leader-elect-lease-duration=0", []string{"--leader-elect-lease-duration: must be greater than zero"}},
		{"--leader-elect-lease-duration=10s", []string{"--leader-elect-lease-duration: must be greater than the renew deadline of 10s"}},
		{"--leader-elect-lease-duration=11s", []string{"--leader-elect-lease-duration: must exceed the renew deadline of 10s by more than the safety margin of 1.1s"}},
		{"--leader-elect-renew-deadline=0", []string{"--leader-elect-renew-deadline: must be greater than zero"}},
		{"--leader-elect-renew-deadline=2400ms", []string{"--leader-elect-renew-deadline: must be greater than 1.2 times the retry period of 2s"}},
		{"--leader-elect-retry-period=0", []string{"--leader-elect-retry-period: must be greater than zero"}},
		{"--leader-elect-resource-lock=endpoints", []string{`--leader-elect-resource-lock: "endpoints": resourceLock value must be "leases"`}},
		{"--leader-elect-resource-name=", []string{"--leader-elect-resource-name: must not be empty"}},
		{"--leader-elect-resource-namespace=", []string{"--leader-elect-resource-namespace: must not be empty"}},
		{"--leader-elect=false --leader-elect-retry-period=0 --leader-elect-resource-lock=x", nil},
		{"--emulated-version=1.33 --min-compatibility-version=1.34", []string{"--feature-gates, --emulated-version, --min-compatibility-version: emulation version 1.33 is not between [1.34, 1.37.0]", "--feature-gates, --emulated-version, --min-compatibility-version: minCompatibilityVersion version 1.34 is not between [1.34, 1.33]"}},
		{"--secure-port=-1", []string{"--secure-port: -1 must be between 0 and 65535"}},
		{"--secure-port=65536", []string{"--secure-port: 65536 must be between 0 and 65535"}},
		{"--secure-port=0", nil},
		{"--tls-cert-file=x", []string{"--tls-private-key-file: is needed with --tls-cert-file=x"}},
		{"--tls-private-key-file=x", []string{"--tls-cert-file: is needed with --tls-private-key-file=x"}},
		{"--tls-cipher-suites=x", []string{"--tls-cipher-suites: "}},
		{"--tls-curve-preferences=0", []string{"--tls-curve-preferences: "}},
		{"--tls-min-version=SSL3", []string{`--tls-min-version: unknown tls version "SSL3"`}},
		{"--http2-max-streams-per-connection=-1", []string{"--http2-max-streams-per-connection: -1 must be"}},
		{"--authentication-token-webhook-cache-ttl=-1s", []string{"--authentication-token-webhook-cache-ttl: -1s is negative"}},
		{"--requestheader-username-headers=a, ", []string{"--requestheader-username-headers: has an empty value"}},
		{"--requestheader-allowed-names=,a", []string{"--requestheader-allowed-names: has an empty value"}},
		{"--requestheader-uid-headers=,a", []string{"--requestheader-uid-headers: has an empty value"}},
		{"--requestheader-group-headers=,a", []string{"--requestheader-group-headers: has an empty value"}},
		{"--requestheader-extra-headers-prefix=,a", []string{"--requestheader-extra-headers-prefix: has an empty value"}},
		{"--authorization-webhook-cache-authorized-ttl=-1s", []string{"--authorization-webhook-cache-authorized-ttl: -1s is negative"}},
		{"--authorization-webhook-cache-unauthorized-ttl=-1s", []string{"--authorization-webhook-cache-unauthorized-ttl: -1s is negative"}},
		{"--authorization-always-allow-paths=/a/*/b", []string{`--authorization-always-allow-paths: "/a/*/b" may have * only at its end`}},
		{"--concurrent-replicaset-syncs=0", []string{"--concurrent-replicaset-syncs: 0 is less than 1"}},
		{"--concurrent-namespace-syncs=0", []string{"--concurrent-namespace-syncs: 0 is less than 1"}},
		{"--namespace-sync-period=0", []string{"--namespace-sync-period: 0s is not greater than zero"}},
		{"--namespace-deletion-grace-period=-1s", []string{"--namespace-deletion-grace-period: -1s is negative"}},
		{"--namespace-deletion-grace-period=0", nil},
		{"--node-monitor-period=0", []string{"--node-monitor-period: 0s is not greater than zero"}},
		{"--node-monitor-grace-period=0", []string{"--node-monitor-grace-period: 0s is not greater than zero"}},
		{"--node-startup-grace-period=0", []string{"--node-startup-grace-period: 0s is not greater than zero"}},
		{"--node-eviction-rate=-0.1", []string{"--node-eviction-rate: -0.1 is not a rate"}},
		{"--node-eviction-rate=0", nil},
		{"--secondary-node-eviction-rate=NaN", []string{"--secondary-node-eviction-rate: NaN is not a rate"}},
		{"--large-cluster-size-threshold=-1", []string{"--large-cluster-size-threshold: -1 is negative"}},
		{"--unhealthy-zone-threshold=0", []string{"--unhealthy-zone-threshold: 0 is not a share"}},
		{"--unhealthy-zone-threshold=1.1", []string{"--unhealthy-zone-threshold: 1.1 is not a share"}},
		{"--unhealthy-zone-threshold=1", nil},
		{"--terminated-pod-gc-threshold=-1", nil},
		{"--show-hidden-metrics-for-version=1.35", []string{`--show-hidden-metrics-for-version: "1.35" is not the previous minor version, 1.36`}},
		{"--show-hidden-metrics-for-version=1.36", nil},
		{"--disabled-metrics=9x", []string{"metrics flags: "}},
		{"--logging-format=xml", []string{`logging flags: format: Invalid value: "xml": Unsupported log format`}},
		{"--log-flush-frequency=0", []string{"logging flags: flushFrequency: "}},
		{"--logging-format=json --vmodule=a=1", []string{"logging flags: vmodule: "}},
		{"--log-json-split-stream", []string{"logging flags: options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"}},
		{"--log-json-split-stream --feature-gates=LoggingAlphaOptions=true", nil},
		{"--root-ca-file=x --allocate-node-cidrs --enable-leader-migration=false", []string{"--root-ca-file: not used by this manager, remove it", "--allocate-node-cidrs: not used by this manager, remove it", "--enable-leader-migration: not used by this manager, remove it"}},
		{"--cluster-cidr=x --secure-port=-1 --concurrent-namespace-syncs=0 --controllers=x", []string{"--cluster-cidr: ", "--controllers: ", "--secure-port: ", "--concurrent-namespace-syncs: "}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			var args []string
			for arg := range strings.SplitSeq(tt.args, " --") {
				if arg != "" {
					args = append(args, "--"+strings.TrimPrefix(arg, "--"))
				}
			}
			got := parsed(t, args...).Validate()
			if len(got) != len(tt.want) {
				t.Fatalf("Validate() = %v, want %d problems: %q", got, len(tt.want), tt.want)
			}
			for i, err := range got {
				if !strings.HasPrefix(err.Error(), tt.want[i]) || strings.Contains(err.Error(), "\n") {
					t.Errorf("problem %d is %q, want one line that begins with %q", i, err, tt.want[i])
				}
			}
		})
	}
}

// A command line is either understood or refused with one clear line.
func TestCommandRefuses(t *testing.T) {
	good := minimalKubeconfig(t)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"--foo"}, "unknown flag: --foo"},
		{"bad value", []string{"--secure-port=x"}, `invalid argument "x" for "--secure-port" flag`},
		{"argument", []string{"", "extra"}, `controller-manager takes no arguments, got ["" "extra"]`},
		{"unknown gate", []string{"--feature-gates=X=true"}, "unrecognized feature gate: X"},
		{"bad gate", []string{"--feature-gates=FencedWrites=maybe"}, "invalid value of FencedWrites=maybe"},
		{"gate of what we always do", []string{"--feature-gates=SeparateTaintEvictionController=false"}, "cannot set feature gate SeparateTaintEvictionController to false, feature is locked to true"},
		{"gate that the caches need", []string{"--feature-gates=AtomicFIFO=false"}, "cannot set feature gate AtomicFIFO to false, feature is locked to true"},
		{"gate of what we never do", []string{"--feature-gates=CoordinatedLeaderElection=true"}, "locked to false"},
		{"bad version", []string{"--version=maybe"}, "want true, false, raw or a version"},
		{"version we cannot be", []string{"--version=v0.1.0"}, "version"},
		{"several problems", []string{"--secure-port=-1", "--concurrent-namespace-syncs=0"}, "[--secure-port: "},
		{"missing kubeconfig", []string{"--kubeconfig=/missing/file"}, "--kubeconfig=/missing/file: stat /missing/file: no such file or directory"},
		{"kubeconfig that is none", []string{"--kubeconfig=" + writeFile(t, "k", []byte("x\ny\n"))}, "error loading config file"},
		{"empty kubeconfig", []string{"--kubeconfig=" + writeFile(t, "k", nil)}, "no configuration has been provided"},
		{"kubeconfig without the file it names", []string{"--kubeconfig=" + writeFile(t, "k", []byte(`{"current-context":"x","clusters":[{"name":"c","cluster":{"server":"https://h","certificate-authority":"/missing/ca"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`))}, "/missing/ca"},
		{"bad address", []string{"--master=:::", "--kubeconfig=" + good}, "--master=:::: "},
		{"no API server", []string{"--kubeconfig="}, "--kubeconfig: needed to reach an API server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := executed(t, &bytes.Buffer{}, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("command returned %q, want one line with %q", err, tt.want)
			}
		})
	}
}

// executed runs the command with a context that has ended, so that it stops when it would wait.
func executed(t *testing.T, out *bytes.Buffer, args ...string) error {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cmd := NewCommand()
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SilenceErrors = true
	return cmd.ExecuteContext(ctx)
}

func TestVersionFlag(t *testing.T) {
	for _, tt := range []struct{ arg, want string }{
		{"--version", "controller-manager v"},
		{"--version=raw", "version.Info{"},
	} {
		var out bytes.Buffer
		if err := executed(t, &out, tt.arg); err != nil || !strings.HasPrefix(out.String(), tt.want) {
			t.Errorf("%s printed %q, %v; want %q", tt.arg, out.String(), err, tt.want)
		}
	}
}

// Help has upstream's sections, and none of the flags that mean nothing here.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := executed(t, &out, "--help"); err != nil {
		t.Fatal(err)
	}
	var sections []string
	for line := range strings.Lines(out.String()) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), " flags:"); ok {
			sections = append(sections, name)
		}
	}
	want := []string{"Debugging", "Generic", "Secure serving", "Authentication", "Authorization", "Namespace-controller", "Node-lifecycle-controller",
		"Pod-garbage-collector-controller", "Replicaset-controller", "Metrics", "Logs", "Misc", "Global"}
	if diff := cmp.Diff(want, sections); diff != "" {
		t.Errorf("sections of --help (-want +got):\n%s", diff)
	}
	if strings.Contains(out.String(), "root-ca-file") {
		t.Error("help shows flags that mean nothing here")
	}
}

// docs/flags.md is made from the flags. UPDATE_DOCS=1 writes it.
func TestFlagsDocumentation(t *testing.T) {
	const file = "../../docs/flags.md"
	want := flagsPage(NewOptions().Flags())
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/flags.md is out of date, run this test with UPDATE_DOCS=1 (-flags +file):\n%s", diff)
	}
}

func flagsPage(sections cliflag.NamedFlagSets) string {
	var b strings.Builder
	b.WriteString("# Flags\n\nMade from the program by a test, do not edit. Names and defaults are those of kube-controller-manager v1.37 unless the\n" +
		"meaning says otherwise or the flag is marked *ours*; *differs* marks a default that is not upstream's.\n" +
		"Flags of kube-controller-manager that are not listed here are refused with a message that names each of them.\n")
	for _, name := range sections.Order {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | default | meaning |\n| --- | --- | --- |\n", strings.ToUpper(name[:1])+name[1:])
		sections.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			value, mark := f.DefValue, map[string]string{
				"namespace-deletion-grace-period": " *ours*", "leader-elect-warm-standby": " *ours*",
				"kube-api-qps": " *differs: 20*", "leader-elect-resource-name": " *differs: kube-controller-manager*",
			}[f.Name]
			if value != "" {
				value = "`" + value + "`"
			}
			usage := strings.NewReplacer("\n", "<br>", "|", "\\|", "'*'", "`*`").Replace(f.Usage)
			fmt.Fprintf(&b, "| `--%s` | %s%s | %s |\n", f.Name, value, mark, usage)
		})
	}
	return b.String()
}

func TestConfigz(t *testing.T) {
	o := parsed(t, "--kubeconfig="+minimalKubeconfig(t), "--leader-elect-lease-duration=20s")
	cfg, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(configzDocument(cfg))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1", "kind": "KubeControllerManagerConfiguration",
		"Generic.Port": 10257.0, "Generic.Address": "0.0.0.0", "Generic.MinResyncPeriod": "12h0m0s",
		"Generic.LeaderElection.leaseDuration": "20s", "Generic.LeaderElection.leaderElect": true, "Generic.ClientConnection.qps": -1.0,
		"Generic.Debugging.enableProfiling": true, "NamespaceController.ConcurrentNamespaceSyncs": 10.0,
		"NodeLifecycleController.NodeMonitorGracePeriod": "50s", "PodGCController.TerminatedPodGCThreshold": 12500.0,
		"ReplicaSetController.ConcurrentRSSyncs": 5.0, "Promises.FencedWrites": true,
	} {
		at := any(doc)
		for key := range strings.SplitSeq(path, ".") {
			at, _ = at.(map[string]any)[key]
		}
		if at != want {
			t.Errorf("%s = %v, want %v", path, at, want)
		}
	}
}
