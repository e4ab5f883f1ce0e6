package kubeclient

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// CertificateMetric returns a gauge with the expiration of the client certificate of cfg. The metric of
// client-go v0.37 covers only certificates of exec plugins.
func CertificateMetric(cfg rest.TLSClientConfig) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rest_client_certificate_expiration_timestamp_seconds",
		Help: "Unix time at which the client certificate of the kubeconfig expires; 0 without a certificate, or if its file cannot be read.",
	}, func() float64 {
		text := cfg.CertData
		if len(text) == 0 && cfg.CertFile != "" {
			text, _ = os.ReadFile(cfg.CertFile) // clients reload a renewed file, and log an error
		}
		chain, err := certutil.ParseCertsPEM(text)
		if err != nil {
			return 0
		}
		return float64(chain[0].NotAfter.Unix()) // the client certificate comes first
	})
}
