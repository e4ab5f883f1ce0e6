package namespace

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// newMetadataClient returns a metadata client that discards response bodies of deletes. A response to
// deletecollection has every deleted object: 500 large custom resources are hundreds of megabytes. If a type
// can be listed, the client requests metadata instead.
func newMetadataClient(cfg *rest.Config) (metadata.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandlerWithContext = rest.NoWarnings{} // of deprecated types
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return discardBodies{next} })
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	return client, nil
}

// listAccept is the Accept header of the metadata client for lists.
const listAccept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

type discardBodies struct{ next http.RoundTripper }

func (d discardBodies) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodDelete {
		return d.next.RoundTrip(req)
	}
	if req.URL.Query().Has("limit") { // a deletecollection of a type that can be listed
		req = req.Clone(req.Context())
		req.Header.Set("Accept", listAccept)
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

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (d discardBodies) WrappedRoundTripper() http.RoundTripper { return d.next }
