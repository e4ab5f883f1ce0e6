package app

import (
	"strings"
	"testing"

	_ "k8s.io/component-base/logs/json/register" // as in package command
)

func TestValidate(t *testing.T) {
	notPositive := []string{"--leader-elect-lease-duration: must be greater than zero", "--leader-elect-renew-deadline: must be greater than zero", "--leader-elect-retry-period: must be greater than zero"}
	for _, tt := range []struct {
		args string   // separated by blanks
		want []string // prefixes of the problems, in order; empty: valid
	}{
		{"", nil},
		{"--controllers=-replicaset --min-resync-period=0 --controller-shutdown-timeout=0 --kube-api-qps=20 --kube-api-burst=0 --secure-port=0 " +
			"--large-cluster-size-threshold=-1 --unhealthy-zone-threshold=-0.5 --terminated-pod-gc-threshold=-1 --show-hidden-metrics-for-version=1.36", nil},
		{"--controllers= --kube-api-qps=0 --kube-api-content-type=application/json;charset=utf-8 --leader-elect=false --leader-elect-retry-period=0 --leader-elect-resource-lock=x " +
			"--log-json-split-stream --feature-gates=LoggingAlphaOptions=true", nil},
		{"--controllers=foo,-bar,-*,podgc", []string{`--controllers: "foo" is not in the list of known controllers, "bar" is not in the list of known controllers, "*" is not in the list of known controllers; known are replicaset-controller (replicaset), `}},
		{"--min-resync-period=-1s --controller-start-interval=-1s --kube-api-qps=NaN", []string{
			"--min-resync-period: -1s is negative", "--controller-start-interval: -1s is negative", "--kube-api-qps: NaN is not a rate"}},
		{"--kube-api-qps=20 --kube-api-burst=-1", []string{"--kube-api-burst: -1 is negative"}},
		{"--kube-api-content-type=text/xml", []string{`--kube-api-content-type: "text/xml" is not an encoding of client-go`}},
		{"--leader-elect-lease-duration=10s", []string{"--leader-elect-lease-duration: must be greater than the renew deadline of 10s"}},
		{"--leader-elect-lease-duration=10s --leader-elect-renew-deadline=9900ms", []string{"--leader-elect-lease-duration: must exceed the renew deadline of 9.9s by more than the safety margin of 100ms"}},
		{"--leader-elect-lease-duration=10900ms --leader-elect-renew-deadline=10900ms", []string{"--leader-elect-lease-duration: must be greater than the renew deadline of 10.9s"}},
		{"--leader-elect-lease-duration=10050ms --leader-elect-renew-deadline=10s", nil}, // rounded up to 11s
		{"--leader-elect-lease-duration=900ms --leader-elect-renew-deadline=500ms --leader-elect-retry-period=100ms", nil},
		{"--leader-elect-lease-duration=1193047h", notPositive[:1]},
		{"--leader-elect-lease-duration=0 --leader-elect-renew-deadline=0 --leader-elect-retry-period=0", notPositive},
		{"--leader-elect-lease-duration=-3ns --leader-elect-renew-deadline=-2ns --leader-elect-retry-period=-1ns", notPositive},
		{"--leader-elect-resource-namespace= --leader-elect-resource-name=", []string{"--leader-elect-resource-namespace: must not be empty", "--leader-elect-resource-name: must not be empty"}},
		{"--leader-elect-resource-lock=", []string{`--leader-elect-resource-lock: must be "leases"`}},
		{"--leader-elect-resource-lock=endpoints", []string{`--leader-elect-resource-lock: "endpoints": `}},
		{"--leader-elect=false --controller-shutdown-timeout=-1s", []string{"--controller-shutdown-timeout: -1s is negative"}},
		{"--leader-elect-renew-deadline=2400ms", []string{"--leader-elect-renew-deadline: must be greater than 1.2 times the retry period of 2s"}},
		{"--emulated-version=1.33 --min-compatibility-version=1.34", []string{"--feature-gates, --emulated-version, --min-compatibility-version: emulation version 1.33 is not between [1.34, 1.37.0]", "--feature-gates, --emulated-version, --min-compatibility-version: minCompatibilityVersion version 1.34 is not between [1.34, 1.33]"}},
		{"--secure-port=-1", []string{"--secure-port: -1 must be between 0 and 65535"}},
		{"--tls-cert-file=x", []string{"--tls-private-key-file: is needed with --tls-cert-file=x"}},
		{"--tls-private-key-file=x", []string{"--tls-cert-file: is needed with --tls-private-key-file=x"}},
		{"--tls-cipher-suites=x --tls-curve-preferences=0 --tls-min-version=SSL3 --http2-max-streams-per-connection=-1", []string{"--tls-cipher-suites: ",
			"--tls-curve-preferences: ", `--tls-min-version: unknown tls version "SSL3"`, "--http2-max-streams-per-connection: -1 must be"}},
		{"--authentication-token-webhook-cache-ttl=-1s", []string{"--authentication-token-webhook-cache-ttl: -1s is negative"}},
		{"--requestheader-username-headers=a, ", []string{"--requestheader-username-headers: has an empty value"}},
		{"--requestheader-allowed-names=,a", []string{"--requestheader-allowed-names: has an empty value"}},
		{"--authorization-webhook-cache-authorized-ttl=-1s", []string{"--authorization-webhook-cache-authorized-ttl: -1s is negative"}},
		{"--authorization-always-allow-paths=/a/*/b", []string{`--authorization-always-allow-paths: only trailing * allowed in "a/*/b"`}},
		{"--concurrent-namespace-syncs=0 --namespace-sync-period=0", []string{"--concurrent-namespace-syncs: 0 is less than 1", "--namespace-sync-period: 0s is not greater than zero"}},
		{"--concurrent-service-endpoint-syncs=50 --max-endpoints-per-slice=1000 --endpointslice-updates-batch-period=1m", nil},
		{"--concurrent-service-endpoint-syncs=51 --max-endpoints-per-slice=1001 --endpointslice-updates-batch-period=61s", []string{"--concurrent-service-endpoint-syncs: 51 is not in the range 1 to 50",
			"--max-endpoints-per-slice: 1001 is not in the range 1 to 1000", "--endpointslice-updates-batch-period: 1m1s is not in the range 0s to 1m0s"}},
		{"--concurrent-service-endpoint-syncs=0 --max-endpoints-per-slice=0 --endpointslice-updates-batch-period=-1s", []string{"--concurrent-service-endpoint-syncs: 0 is not in the range 1 to 50",
			"--max-endpoints-per-slice: 0 is not in the range 1 to 1000", "--endpointslice-updates-batch-period: -1s is not in the range 0s to 1m0s"}},
		{"--namespace-deletion-grace-period=-1s", []string{"--namespace-deletion-grace-period: -1s is negative"}},
		{"--node-monitor-period=0", []string{"--node-monitor-period: 0s is not greater than zero"}},
		{"--node-eviction-rate=-0.1 --secondary-node-eviction-rate=NaN --unhealthy-zone-threshold=NaN", []string{"--node-eviction-rate: -0.1 is not a rate",
			"--secondary-node-eviction-rate: NaN is not a rate", "--unhealthy-zone-threshold: NaN is not a number"}},
		{"--garbage-collector-ignored-resources=foos.example.com,.apps,batch/jobs", []string{
			`--garbage-collector-ignored-resources: ".apps" is not a resource`, `--garbage-collector-ignored-resources: "batch/jobs" is not a resource`,
		}},
		{"--show-hidden-metrics-for-version=1.35", []string{`--show-hidden-metrics-for-version: "1.35" is not the previous minor version, 1.36`}},
		{"--disabled-metrics=9x", []string{"metrics flags: "}},
		{"--logging-format=xml", []string{`logging flags: format: Invalid value: "xml": Unsupported log format`}},
		{"--log-json-split-stream", []string{"logging flags: options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"}},
		{"--root-ca-file=x --allocate-node-cidrs --enable-leader-migration=false", []string{"--root-ca-file: not used by this manager; remove it", "--allocate-node-cidrs: not used by this manager; remove it", "--enable-leader-migration: not used by this manager; remove it"}},
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
