package kubeclient

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// CertificateMetric shows when the certificate ends with which clients of cfg identify themselves. client-go v0.37 shows it only of those
// that an exec plugin hands out.
func CertificateMetric(cfg rest.TLSClientConfig) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rest_client_certificate_expiration_timestamp_seconds",
		Help: "Unix time at which the client certificate of the kubeconfig ends; 0 if it has none, or names a file that cannot be read.",
	}, func() float64 { return certificateEnd(cfg) })
}

// certificateEnd is a Unix time, 0 if there is no certificate. A file is read each time: clients notice by themselves when it is renewed.
func certificateEnd(cfg rest.TLSClientConfig) float64 {
	text := cfg.CertData
	if len(text) == 0 && cfg.CertFile != "" {
		text, _ = os.ReadFile(cfg.CertFile) // clients log why they cannot
	}
	chain, err := certutil.ParseCertsPEM(text)
	if err != nil {
		return 0
	}
	return float64(chain[0].NotAfter.Unix()) // the client's own comes first
}
