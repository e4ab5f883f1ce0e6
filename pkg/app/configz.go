package app

import (
	"net"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
)

// configzDocument is what /configz shows of cfg: kube-controller-manager's KubeControllerManagerConfiguration with the
// sections that exist here, so that what reads that reads this, and a section of ours.
func configzDocument(cfg Config) any {
	host, port, _ := net.SplitHostPort(cfg.Serving.Address) // empty is fine: then nothing is served either
	portNumber, _ := strconv.Atoi(port)
	doc := configzPage{
		TypeMeta: metav1.TypeMeta{APIVersion: configzName + "/v1alpha1", Kind: "KubeControllerManagerConfiguration"},
		Promises: cfg.Promises,
	}
	elect, e := cfg.Election.Enabled, cfg.Election
	profiling, contention := cfg.Serving.Profiling, cfg.Serving.ContentionProfiling
	doc.Generic = configzGeneric{
		Port: portNumber, Address: host,
		MinResyncPeriod:         metav1.Duration{Duration: cfg.MinResync},
		ControllerStartInterval: metav1.Duration{Duration: cfg.StartInterval},
		Controllers:             cfg.Controllers,
		LeaderElection: componentbaseconfig.LeaderElectionConfiguration{
			LeaderElect:   &elect,
			LeaseDuration: metav1.Duration{Duration: e.LeaseDuration}, RenewDeadline: metav1.Duration{Duration: e.RenewDeadline},
			RetryPeriod: metav1.Duration{Duration: e.RetryPeriod}, ResourceLock: leasesLock,
			ResourceName: e.Name, ResourceNamespace: e.Namespace,
		},
		Debugging: componentbaseconfig.DebuggingConfiguration{EnableProfiling: &profiling, EnableContentionProfiling: &contention},
	}
	if rc := cfg.REST; rc != nil {
		doc.Generic.ClientConnection = componentbaseconfig.ClientConnectionConfiguration{
			AcceptContentTypes: rc.AcceptContentTypes, ContentType: rc.ContentType, QPS: rc.QPS, Burst: int32(rc.Burst),
		}
	}
	doc.NamespaceController.NamespaceSyncPeriod = metav1.Duration{Duration: cfg.Namespace.SyncPeriod}
	doc.NamespaceController.ConcurrentNamespaceSyncs = cfg.Namespace.Workers
	doc.NamespaceController.NamespaceDeletionGracePeriod = metav1.Duration{Duration: cfg.Namespace.DeletionGracePeriod}
	n := cfg.NodeLifecycle
	doc.NodeLifecycleController = configzNodeLifecycle{
		NodeEvictionRate: n.EvictionRate, SecondaryNodeEvictionRate: n.SecondaryEvictionRate,
		NodeStartupGracePeriod:    metav1.Duration{Duration: n.StartupGracePeriod},
		NodeMonitorGracePeriod:    metav1.Duration{Duration: n.MonitorGracePeriod},
		NodeMonitorPeriod:         metav1.Duration{Duration: n.MonitorPeriod},
		LargeClusterSizeThreshold: n.LargeClusterSizeThreshold, UnhealthyZoneThreshold: n.UnhealthyZoneThreshold,
	}
	doc.PodGCController.TerminatedPodGCThreshold = cfg.PodGC.TerminatedPodThreshold
	doc.ReplicaSetController.ConcurrentRSSyncs = cfg.ReplicaSet.Workers
	return doc
}

// The names below are those of k8s.io/kube-controller-manager/config/v1alpha1, whose module we do not need otherwise.
type configzPage struct {
	metav1.TypeMeta
	Generic             configzGeneric
	NamespaceController struct {
		NamespaceSyncPeriod          metav1.Duration
		ConcurrentNamespaceSyncs     int
		NamespaceDeletionGracePeriod metav1.Duration // ours
	}
	NodeLifecycleController configzNodeLifecycle
	PodGCController         struct{ TerminatedPodGCThreshold int }
	ReplicaSetController    struct{ ConcurrentRSSyncs int }
	Promises                Promises // ours
}

type configzGeneric struct {
	Port                    int
	Address                 string
	MinResyncPeriod         metav1.Duration
	ClientConnection        componentbaseconfig.ClientConnectionConfiguration
	ControllerStartInterval metav1.Duration
	LeaderElection          componentbaseconfig.LeaderElectionConfiguration
	Controllers             []string
	Debugging               componentbaseconfig.DebuggingConfiguration
}

type configzNodeLifecycle struct {
	NodeEvictionRate          float32
	SecondaryNodeEvictionRate float32
	NodeStartupGracePeriod    metav1.Duration
	NodeMonitorGracePeriod    metav1.Duration
	LargeClusterSizeThreshold int
	UnhealthyZoneThreshold    float32
	NodeMonitorPeriod         metav1.Duration
}
