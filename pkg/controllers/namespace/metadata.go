package namespace

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// NewMetadataClient returns a metadata client that does not hold answers to deletes in memory. Those to deletecollection list every
// object deleted, whole, and nobody reads them: 500 large custom resources are hundreds of megabytes. This client drops them
// as they come, and asks for metadata instead where types can be listed.
func NewMetadataClient(cfg *rest.Config) (metadata.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandlerWithContext = rest.NoWarnings{} // that a type is deprecated is no news to who deletes what there is of it
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return dropAnswers{next} })
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	return client, nil
}

// metadataAnswer is what the metadata client itself accepts as an answer to a list.
const metadataAnswer = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

type dropAnswers struct{ next http.RoundTripper }

func (d dropAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodDelete {
		return d.next.RoundTrip(req)
	}
	if req.URL.Query().Has("limit") { // a deletecollection of a type that can be listed
		req = req.Clone(req.Context())
		req.Header.Set("Accept", metadataAnswer)
	}
	resp, err := d.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if closed := resp.Body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = http.NoBody, 0
	return resp, nil
}

// WrappedRoundTripper lets client-go see through.
func (d dropAnswers) WrappedRoundTripper() http.RoundTripper { return d.next }
