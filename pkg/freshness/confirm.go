package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/internal/rv"
	"minikcm/internal/timing"
)

// ErrBehind is in the error of Confirm when the store differs from a list.
var ErrBehind = errors.New("the cache is behind the API server")

// Confirm waits for a version before the whole list: most caches are behind for milliseconds.
const (
	confirmStep  = 10 * time.Millisecond
	confirmSteps = 25
)

// Confirm returns nil once the store is known to be no older than this call: the store has reached the
// version of a consistent list or, if the type is quiet, equals a list. All requests are for metadata and
// end with ctx.
func (w Watched) Confirm(ctx context.Context, client metadata.Interface, clk clock.Clock) error {
	list := client.Resource(w.Resource).Namespace(w.Namespace).List
	version, err := w.latestVersion(ctx, list)
	if err != nil {
		return err
	}
	for range confirmSteps {
		if rv.AtLeast(w.Version(), version) {
			return nil
		}
		if !timing.Sleep(ctx, clk, confirmStep) {
			return context.Cause(ctx)
		}
	}
	listed, version, err := w.listAll(ctx, list)
	if err != nil {
		return err
	}
	if diff := differenceTo(listed, version, w.Objects()); len(diff) > 0 {
		return fmt.Errorf("%w: %v", ErrBehind, diff)
	}
	return nil
}

// listPageFunc lists one page of the metadata of a type.
type listPageFunc func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)

// latestVersion reads the latest resourceVersion of the type with a limit=1 list.
func (w Watched) latestVersion(ctx context.Context, list listPageFunc) (string, error) {
	page, err := list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("list %v: %w", w.target(), err)
	}
	return page.ResourceVersion, nil
}

// listAll lists the metadata of all objects at one version.
func (w Watched) listAll(ctx context.Context, list listPageFunc) (all ObjectVersions, version string, err error) {
	all = ObjectVersions{}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := list(ctx, options)
		if err != nil {
			return nil, "", fmt.Errorf("list all %v: %w", w.target(), err)
		}
		if version == "" {
			version = page.ResourceVersion
		}
		for i := range page.Items {
			item := &page.Items[i]
			all[types.NamespacedName{Namespace: item.Namespace, Name: item.Name}] = ObjectVersion{item.UID, item.ResourceVersion}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return all, version, nil
		}
	}
}
