package app

import (
	"strings"

	"github.com/spf13/pflag"

	"minikcm/pkg/controller"
)

func (o *GenericOptions) addFlags(fs *pflag.FlagSet, controllers []controller.Registration) {
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers,
		"Controllers to run: 'foo' switches foo on, '-foo' switches it off, '*' switches on all that no other item names. "+
			"The first item that names a controller decides.\nKnown: "+strings.Join(namesWithAliases(controllers), ", "))
	fs.DurationVar(&o.MinResyncPeriod, "min-resync-period", o.MinResyncPeriod,
		"Each informer replays its whole store to its handlers once in a random time between this and twice this. 0 never does.")
	fs.DurationVar(&o.ControllerStartInterval, "controller-start-interval", o.ControllerStartInterval,
		"At the start of a term each controller waits a random time between this and twice this. 0 starts all at once.")
	fs.DurationVar(&o.ControllerShutdownTimeout, "controller-shutdown-timeout", o.ControllerShutdownTimeout,
		"How long running syncs may take to finish when the process is told to stop. 0 waits forever.")
}

func (o *ClientOptions) addGenericFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ContentType, "kube-api-content-type", o.ContentType,
		"Content type of requests to the API server: application/vnd.kubernetes.protobuf, application/json or application/yaml, "+
			"parameters allowed. Empty: JSON.")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS,
		"Requests per second that each client may send on average. Negative: no client-side limit; the number of workers "+
			"and the API server's priority and fairness bound the load. 0: client-go's default of 5.")
	fs.Int32Var(&o.Burst, "kube-api-burst", o.Burst,
		"Requests that each client may send at once before --kube-api-qps applies. Not used with a negative --kube-api-qps. 0: client-go's default of 10.")
	fs.BoolVar(&o.ServiceAccounts, "use-service-account-credentials", o.ServiceAccounts,
		"Let each controller use its own service account in kube-system, with upstream's names, so that upstream's "+
			"roles for controllers apply. Watches, events and the Lease stay with the identity of this process.")
}

func (o *ClientOptions) addMiscFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig with the address of the API server and our credentials. Without this and --master the pod's service "+
			"account is used.")
	fs.StringVar(&o.Master, "master", o.Master,
		"Address of the API server. Takes precedence over the address in --kubeconfig.")
}

func (o *LeaderElectionOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"Work only while holding a Lease, so that several replicas can run and only one works.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration,
		"Others may take the Lease when they have seen no renewal for this long. After a crash this is how long nobody works; while writes are slow, it is up to 45 seconds. Rounded up to whole seconds.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline,
		"A leader that has not been able to renew for this long stops leading. Must be less than --leader-elect-lease-duration, by more than 0.1 s.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod,
		"Pause between two renewals, and between two attempts to take the Lease.")
	fs.StringVar(&o.ResourceLock, "leader-elect-resource-lock", o.ResourceLock,
		"Kind of object to lock. Only 'leases'.")
	fs.StringVar(&o.ResourceName, "leader-elect-resource-name", o.ResourceName,
		"Name of the Lease. 'kube-controller-manager' takes turns with a kube-controller-manager that runs the same controllers.")
	fs.StringVar(&o.ResourceNamespace, "leader-elect-resource-namespace", o.ResourceNamespace,
		"Namespace of the Lease.")
	fs.BoolVar(&o.WarmStandby, "leader-elect-warm-standby", o.WarmStandby,
		"Keep caches filled while another replica leads, so that taking over takes milliseconds. Without it a standby needs "+
			"less memory and fills its caches after it has won; it has heard no node before, so every silent node gets its grace period anew.")
}
