package app

import (
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/deployment"
	"minikcm/pkg/controllers/endpointslice"
	"minikcm/pkg/controllers/garbagecollector"
	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/replicaset"
	"minikcm/pkg/leadership"
	"minikcm/pkg/serving"
)

// parsed returns the options that a command line gives, with gates set.
func parsed(t *testing.T, args ...string) *Options {
	t.Helper()
	o := NewOptions(Controllers())
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	sections := o.Flags()
	for _, name := range sections.Order {
		fs.AddFlagSet(sections.FlagSets[name])
	}
	fakeapi.NoError(t, fs.Parse(args))
	fakeapi.NoError(t, o.SetGates())
	return o
}

// minimalKubeconfig writes a kubeconfig that names only a server.
func minimalKubeconfig(t *testing.T) string {
	t.Helper()
	return fakeapi.WriteFile(t, "kubeconfig", []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x",
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`))
}

// comparable drops the fields of a Config that differ in each process, and functions such as flags and
// most parts of a controller.
var comparable = cmp.Options{
	cmpopts.IgnoreFields(Config{}, "Controllers", "Known", "Enabled"),
	cmpopts.IgnoreFields(leadership.Config{}, "Identity"),
	cmpopts.IgnoreFields(rest.Config{}, "UserAgent"),
	cmpopts.IgnoreFields(serving.Config{}, "Flags"),
	cmpopts.IgnoreUnexported(rest.Config{}),
}

// Every flag, with a value other than the default, sets the right field. TestFlagsDocumentation has the defaults.
func TestFlagsReachConfig(t *testing.T) {
	file := minimalKubeconfig(t)
	o := parsed(t,
		"--kubeconfig="+file, "--master=https://10.0.0.1:6443",
		"--profiling=false", "--contention_profiling=true",
		"--controllers=*,-podgc,-nodelifecycle", "--min-resync-period=8h", "--controller-start-interval=2m", "--controller-shutdown-timeout=1h",
		"--kube-api-qps=50", "--kube-api-burst=100", "--kube-api-content-type=application/json",
		"--leader-elect=false", "--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=15s", "--leader-elect-retry-period=5s",
		"--leader-elect-resource-name=name", "--leader-elect-resource-namespace=ns",
		"--feature-gates=PodDeletionCost=false", "--feature-gates=DeploymentReplicaSetTerminatingReplicas=false,ComponentFlagz=false,ComponentStatusz=false", "--emulated-version=1.36",
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
		"--concurrent-replicaset-syncs=6", "--concurrent-deployment-syncs=9", "--concurrent-namespace-syncs=7", "--namespace-sync-period=10m", "--namespace-deletion-grace-period=0",
		"--concurrent-service-endpoint-syncs=8", "--max-endpoints-per-slice=90", "--endpointslice-updates-batch-period=2s",
		"--node-monitor-period=10s", "--node-monitor-grace-period=30s", "--node-startup-grace-period=30s", "--node-eviction-rate=0.2",
		"--secondary-node-eviction-rate=0.05", "--large-cluster-size-threshold=100", "--unhealthy-zone-threshold=0.6", "--terminated-pod-gc-threshold=12000",
		"--enable-garbage-collector=false", "--concurrent-gc-syncs=21", "--garbage-collector-dry-run", "--garbage-collector-ignored-resources=foos.example.com,secrets",
	)
	if errs := o.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	got := fakeapi.Must(o.Complete())
	want := Config{
		REST:          &rest.Config{Host: "https://10.0.0.1:6443", QPS: 50, Burst: 100, DisableCompression: true, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}},
		MinResync:     8 * time.Hour,
		StartInterval: 2 * time.Minute,
		Election: leadership.Config{
			LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 5 * time.Second,
			Namespace: "ns", Name: "name", ResourceLock: "leases", ShutdownTimeout: time.Hour,
		},
		CheckFreshness: true,
		Serving: serving.Config{
			BindAddress: net.IPv4(192, 168, 4, 10), Port: 10001, SharePort: true, ShareAddresses: true,
			TLS: serving.TLSConfig{
				CertDir: "/a/b/c", CertFile: "/c.crt", KeyFile: "/c.key",
				SNI:        []cliflag.NamedCertKey{{CertFile: "/s.crt", KeyFile: "/s.key", Names: []string{"*.foo.com", "foo.com"}}},
				MinVersion: "VersionTLS13", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
				Curves: []int32{23, 29}, HTTP2Streams: 47, DisableHTTP2: true,
			},
			Authentication: serving.AuthenticationConfig{
				Kubeconfig: "/authn", SkipLookup: true, TokenCacheTTL: time.Second, ClientCAFile: "/ca",
				RequestHeader: serving.RequestHeaderConfig{
					ClientCAFile: "/rh", AllowedNames: []string{"a", "b"}, UsernameHeaders: []string{"u"}, UIDHeaders: []string{"i"},
					GroupHeaders: []string{"g"}, ExtraHeaderPrefixes: []string{"e"},
				},
			},
			Authorization: serving.AuthorizationConfig{
				Kubeconfig: "/authz", AlwaysAllowPaths: []string{"/x", "/y/*"}, AllowedTTL: 2 * time.Second, DeniedTTL: 3 * time.Second,
			},
			ContentionProfiling: true,
			EmulationVersion:    "1.36",
		},
	}
	wantConfigs := []controller.Config{
		&replicaset.Config{Workers: 6},
		&node.Config{
			MonitorPeriod: 10 * time.Second, MonitorGracePeriod: 30 * time.Second, StartupGracePeriod: 30 * time.Second,
			EvictionRate: 0.2, SecondaryEvictionRate: 0.05, LargeClusterSizeThreshold: 100, UnhealthyZoneThreshold: 0.6,
		},
		nil,
		&podgc.Config{TerminatedPodThreshold: 12000, Quarantine: 40 * time.Second, Period: 20 * time.Second},
		&namespace.Config{Workers: 7, SyncPeriod: 10 * time.Minute},
		&endpointslice.Config{Workers: 8, MaxEndpoints: 90, BatchPeriod: 2 * time.Second},
		&deployment.Config{Workers: 9},
		&garbagecollector.Config{Workers: 21, DryRun: true, Ignored: []string{"foos.example.com", "secrets"}},
	}
	fakeapi.WantEqual(t, "configuration", got, want, comparable)
	enabled := []string{"replicaset-controller", "taint-eviction-controller", "namespace-controller", "endpointslice-controller", "deployment-controller"}
	fakeapi.WantEqual(t, "enabled controllers", controllerNames(got.Controllers), enabled)
	for i, c := range o.Known {
		fakeapi.WantEqual(t, "configuration of "+c.Name, c.Config, wantConfigs[i])
		for gate := range c.Gates {
			fakeapi.Want(t, "gate "+string(gate)+" of "+c.Name, got.Enabled(gate), false)
		}
	}
}

func TestConfigz(t *testing.T) {
	o := parsed(t, "--kubeconfig="+minimalKubeconfig(t), "--leader-elect-lease-duration=20s", "--controllers=replicaset")
	cfg := fakeapi.Must(o.Complete())
	var doc map[string]any
	raw, err := json.Marshal(configzDocument(cfg))
	fakeapi.NoError(t, errors.Join(err, json.Unmarshal(raw, &doc)))
	for path, want := range map[string]any{
		"apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1", "kind": "KubeControllerManagerConfiguration",
		"Generic.Port": 10257.0, "Generic.Address": "0.0.0.0", "Generic.MinResyncPeriod": "12h0m0s",
		"Generic.LeaderElection.leaseDuration": "20s", "Generic.LeaderElection.leaderElect": true, "Generic.ClientConnection.qps": -1.0,
		"Generic.Debugging.enableProfiling": true, "NamespaceController.ConcurrentNamespaceSyncs": 10.0,
		"NodeLifecycleController.NodeMonitorGracePeriod": "50s", "PodGCController.TerminatedPodGCThreshold": 12500.0,
		"ReplicaSetController.ConcurrentRSSyncs": 5.0,
	} {
		at := any(doc)
		for key := range strings.SplitSeq(path, ".") {
			at, _ = at.(map[string]any)[key]
		}
		fakeapi.Want(t, path, at, want)
	}
}
