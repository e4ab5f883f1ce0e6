package app

import (
	"errors"
	"fmt"
	"math"
	"mime"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"minikcm/pkg/flagcheck"
	"minikcm/pkg/kubeclient"
)

// ClientOptions say how to reach the API server.
type ClientOptions struct {
	Kubeconfig  string
	Master      string
	ContentType string
	QPS         float32
	Burst       int32
	// ServiceAccounts gives each controller the identity of a service account of its own, as kubeadm has it.
	ServiceAccounts bool
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

func (o *ClientOptions) validate() []error {
	var p flagcheck.Problems
	qps := float64(o.QPS)
	switch {
	case math.IsNaN(qps) || math.IsInf(qps, 0):
		p.Addf("kube-api-qps", "%v is not a rate", o.QPS)
	case o.QPS >= 0 && o.Burst < 0:
		p.Addf("kube-api-burst", "%d is negative, which with --kube-api-qps=%v would send nothing", o.Burst, o.QPS)
	}
	if _, err := o.mediaType(); err != nil {
		p.Addf("kube-api-content-type", "%w", err)
	}
	return p
}

// restConfig reads the kubeconfig, or the pod's service account. Errors are one line and name the flag.
func (o *ClientOptions) restConfig() (*rest.Config, error) {
	cfg, err := kubeclient.Load("kubeconfig", o.Kubeconfig, o.Master)
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("--kubeconfig: needed to reach an API server, because this process does not run in a pod with a service account")
	}
	if err != nil {
		return nil, err
	}
	return cfg, o.apply(cfg)
}

// apply sets how requests are sent.
func (o *ClientOptions) apply(cfg *rest.Config) error {
	kind, err := o.mediaType()
	if err != nil {
		return err
	}
	cfg.UserAgent = kubeclient.UserAgent(Name)
	cfg.DisableCompression = true // cheap on a local network, expensive in CPU; as upstream
	cfg.ContentType = o.ContentType
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if kind == runtime.ContentTypeJSON {
		cfg.AcceptContentTypes = runtime.ContentTypeJSON
	}
	cfg.QPS, cfg.Burst = o.QPS, int(o.Burst)
	if cfg.QPS > 0 && cfg.Burst == 0 {
		cfg.Burst = rest.DefaultBurst // as with a rate of 0; a Clientset takes no other rate without one
	}
	return nil
}

// mediaType is the type behind --kube-api-content-type, without parameters; empty means JSON, as for client-go. An error means that no
// client could encode a request.
func (o *ClientOptions) mediaType() (string, error) {
	if o.ContentType == "" {
		return runtime.ContentTypeJSON, nil
	}
	kind, _, err := mime.ParseMediaType(o.ContentType)
	if err != nil {
		return "", fmt.Errorf("%q: %w", o.ContentType, err)
	}
	var known []string
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		known = append(known, info.MediaType)
	}
	if !slices.Contains(known, kind) {
		return "", fmt.Errorf("%q is none of %s", o.ContentType, strings.Join(known, ", "))
	}
	return kind, nil
}
