package fakeapi

import (
	"io"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/rest/fake"
)

// Readyz is the health check of an API server. The zero value is ready.
type Readyz struct {
	Status int // 0: ready
	Checks int // requests of clients from RESTClient
}

// RESTClient returns a client whose requests all reach the health check.
func (z *Readyz) RESTClient() rest.Interface {
	return &fake.RESTClient{
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		Client: fake.CreateHTTPClient(func(*http.Request) (*http.Response, error) {
			z.Checks++
			w := httptest.NewRecorder()
			z.writeStatus(w)
			return w.Result(), nil
		}),
	}
}

func (z *Readyz) writeStatus(w http.ResponseWriter) {
	if z.Status != 0 {
		http.Error(w, "[+]ping ok\n[-]poststarthook/start-apiextensions-controllers failed: reason withheld\nreadyz check failed", z.Status)
		return
	}
	_, _ = io.WriteString(w, "ok")
}
