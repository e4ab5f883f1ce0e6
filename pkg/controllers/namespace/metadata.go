package namespace

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// newMetadataClient returns a metadata client that requests metadata in response to a deletecollection of a type that
// can be listed. The response has every deleted object: 500 large custom resources are hundreds of megabytes.
func newMetadataClient(cfg *rest.Config) (metadata.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandlerWithContext = rest.NoWarnings{} // of deprecated types
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return metadataTransport{next} })
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	return client, nil
}

// listAccept is the Accept header of the metadata client for lists.
const listAccept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

type metadataTransport struct{ next http.RoundTripper }

func (m metadataTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodDelete && req.URL.Query().Has("limit") { // only a deletecollection of such a type
		req = req.Clone(req.Context())
		req.Header.Set("Accept", listAccept)
	}
	return m.next.RoundTrip(req)
}
