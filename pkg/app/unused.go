package app

import (
	"strings"

	"github.com/spf13/pflag"
)

// unusedFlags are kube-controller-manager v1.37's flags for things this manager does not do. They are
// recognised so that a taken-over manifest gets one message that lists all of them, instead of one "unknown
// flag" per attempt.
const unusedFlags = `
attach-detach-reconcile-sync-period cidr-allocator-type cloud-config cloud-provider cluster-cidr cluster-name
cluster-signing-cert-file cluster-signing-duration cluster-signing-key-file
cluster-signing-kube-apiserver-client-cert-file cluster-signing-kube-apiserver-client-key-file
cluster-signing-kubelet-client-cert-file cluster-signing-kubelet-client-key-file
cluster-signing-kubelet-serving-cert-file cluster-signing-kubelet-serving-key-file
cluster-signing-legacy-unknown-cert-file cluster-signing-legacy-unknown-key-file
concurrent-cron-job-syncs concurrent-daemonset-syncs concurrent-device-taint-eviction-syncs
concurrent-disruption-syncs concurrent-endpoint-syncs concurrent-ephemeralvolume-syncs
concurrent-horizontal-pod-autoscaler-syncs concurrent-job-syncs concurrent-rc-syncs concurrent-resource-quota-syncs
concurrent-resourceclaim-syncs concurrent-serviceaccount-token-syncs
concurrent-statefulset-syncs concurrent-ttl-after-finished-syncs concurrent-validating-admission-policy-status-syncs
endpoint-updates-batch-period external-cloud-volume-plugin flex-volume-plugin-dir
horizontal-pod-autoscaler-cpu-initialization-period horizontal-pod-autoscaler-downscale-stabilization
horizontal-pod-autoscaler-initial-readiness-delay horizontal-pod-autoscaler-sync-period horizontal-pod-autoscaler-tolerance
leader-migration-config legacy-service-account-token-clean-up-period
mirroring-concurrent-service-endpoint-syncs mirroring-endpointslice-updates-batch-period mirroring-max-endpoints-per-subset
node-cidr-mask-size node-cidr-mask-size-ipv4 node-cidr-mask-size-ipv6 node-sync-period
pv-recycler-increment-timeout-nfs pv-recycler-minimum-timeout-hostpath pv-recycler-minimum-timeout-nfs
pv-recycler-pod-template-filepath-hostpath pv-recycler-pod-template-filepath-nfs pv-recycler-timeout-increment-hostpath
pvclaimbinder-sync-period resource-quota-sync-period root-ca-file route-reconciliation-period
service-account-private-key-file service-cluster-ip-range`

// unusedBoolFlags are the unused flags that may be given without a value.
const unusedBoolFlags = `
allocate-node-cidrs allow-untagged-cloud configure-cloud-routes disable-attach-detach-reconcile-sync
disable-force-detach-on-timeout enable-dynamic-provisioning enable-hostpath-provisioner
enable-leader-migration`

// addUnusedFlags makes fs accept the unused flags, hidden from help, and append the names of those given to used.
func addUnusedFlags(fs *pflag.FlagSet, used *[]string) {
	add := func(names, withoutValue string) {
		for name := range strings.FieldsSeq(names) {
			fs.Func(name, "", func(string) error { *used = append(*used, name); return nil })
			f := fs.Lookup(name)
			f.Hidden, f.NoOptDefVal = true, withoutValue
		}
	}
	add(unusedFlags, "")
	add(unusedBoolFlags, "true")
}
