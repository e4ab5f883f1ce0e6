package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/internal/rv"
	"minikcm/internal/timing"
)

// ErrBehind is in the error of Confirm when the store misses something that the API server has shown.
var ErrBehind = errors.New("the cache is behind the API server")

// How long Confirm waits for a version before it asks for a whole list: most caches are behind for milliseconds.
const (
	confirmStep  = 10 * time.Millisecond
	confirmSteps = 25
)

// Confirm returns nil once the store is known to be no older than this call: it has reached the version of a consistent list or, if it
// does not within a moment because the type is quiet, it misses nothing of a list. All requests are for metadata and end with ctx.
func (w Watched) Confirm(ctx context.Context, client metadata.Interface, clk clock.Clock) error {
	list := client.Resource(w.Resource).Namespace(w.Namespace).List
	version, err := w.latest(ctx, list)
	if err != nil {
		return err
	}
	for range confirmSteps {
		if at := w.Version(); at != "" && !rv.Newer(version, at) { // without a version it has not been filled
			return nil
		}
		if !timing.Sleep(ctx, clk, confirmStep) {
			return context.Cause(ctx)
		}
	}
	listed, version, err := w.all(ctx, list)
	if err != nil {
		return err
	}
	diff := differenceTo(listed, version, w.Objects())
	for key := range diff {
		return fmt.Errorf("%w: it differs from a list in %d objects, one is %s", ErrBehind, len(diff), key)
	}
	return nil
}

// lister asks for one page of the metadata of a type.
type lister func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)

// latest asks for the version of the type now: a consistent list, cut to one object.
func (w Watched) latest(ctx context.Context, list lister) (string, error) {
	page, err := list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("list %v: %w", watchTarget{w.Resource, w.Namespace}, err)
	}
	return page.ResourceVersion, nil
}

// all asks for the metadata of all objects, as of one version.
func (w Watched) all(ctx context.Context, list lister) (all []ObjectVersion, version string, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := list(ctx, options)
		if err != nil {
			return nil, "", fmt.Errorf("list all %v: %w", watchTarget{w.Resource, w.Namespace}, err)
		}
		if version == "" {
			version = page.ResourceVersion
		}
		for i := range page.Items {
			item := &page.Items[i]
			all = append(all, ObjectVersion{item.Namespace, item.Name, item.UID, item.ResourceVersion})
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return all, version, nil
		}
	}
}
