package app

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"

	"minikcm/pkg/controller"
)

// configzName is the API group of the document, upstream's.
const configzName = "kubecontrollermanager.config.k8s.io"

// configzDocument is what /configz shows of cfg: kube-controller-manager's KubeControllerManagerConfiguration with the
// sections that exist here, so that what reads that reads this.
func configzDocument(cfg Config) any {
	elect, e := cfg.Election.Enabled, cfg.Election
	profiling := cfg.Serving.Profiling
	contention := profiling && cfg.Serving.ContentionProfiling
	generic := configzGeneric{
		Port: cfg.Serving.Port, Address: cfg.Serving.BindAddress.String(),
		MinResyncPeriod:         metav1.Duration{Duration: cfg.MinResync},
		ControllerStartInterval: metav1.Duration{Duration: cfg.StartInterval},
		Controllers:             names(cfg.Controllers),
		LeaderElection: componentbaseconfig.LeaderElectionConfiguration{
			LeaderElect:   &elect,
			LeaseDuration: metav1.Duration{Duration: e.LeaseDuration}, RenewDeadline: metav1.Duration{Duration: e.RenewDeadline},
			RetryPeriod: metav1.Duration{Duration: e.RetryPeriod}, ResourceLock: leasesLock,
			ResourceName: e.Name, ResourceNamespace: e.Namespace,
		},
		Debugging: componentbaseconfig.DebuggingConfiguration{EnableProfiling: &profiling, EnableContentionProfiling: &contention},
	}
	if rc := cfg.REST; rc != nil {
		generic.ClientConnection = componentbaseconfig.ClientConnectionConfiguration{
			AcceptContentTypes: rc.AcceptContentTypes, ContentType: rc.ContentType, QPS: rc.QPS, Burst: int32(rc.Burst),
		}
	}
	page := map[string]any{"kind": "KubeControllerManagerConfiguration", "apiVersion": configzName + "/v1alpha1", "Generic": generic}
	for name, c := range cfg.Sections {
		page[name] = section(c)
	}
	return page
}

// section is a controller's configuration as /configz shows it: the fields that have a json tag, durations as Go writes them.
func section(cfg controller.Config) map[string]any {
	out := map[string]any{}
	fields := reflect.Indirect(reflect.ValueOf(cfg))
	for i := range fields.NumField() {
		name, value := fields.Type().Field(i).Tag.Get("json"), fields.Field(i).Interface()
		if name == "" || name == "-" {
			continue
		}
		if d, ok := value.(time.Duration); ok {
			value = metav1.Duration{Duration: d}
		}
		out[name] = value
	}
	return out
}

// configzGeneric has the names of k8s.io/kube-controller-manager/config/v1alpha1, whose module we do not need otherwise.
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
