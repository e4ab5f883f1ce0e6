package freshness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"

	"minikcm/internal/rv"
)

// errBehind is in the error of Confirm when the store differs from a list.
var errBehind = errors.New("the cache is behind the API server")

// Confirm waits before the error: most caches are behind for milliseconds.
const confirmPause, confirmTimeout = 10 * time.Millisecond, 250 * time.Millisecond

// Confirm returns nil once the store is known to be no older than this call: the store has all changes that
// a consistent list shows. All requests are for metadata and end with ctx.
func (w WatchedCache) Confirm(ctx context.Context, client metadata.Interface) error {
	listed, version, err := w.listAll(ctx, client.Resource(w.Resource).Namespace(w.Namespace).List)
	if err != nil {
		return err
	}
	diff := differenceTo(listed, version, w.Objects())
	err = wait.PollUntilContextTimeout(ctx, confirmPause, confirmTimeout, true, func(context.Context) (bool, error) {
		diff.removeHealed(w.Objects())
		// A cache at the version of the list has all its changes, and also deletions that came after the list.
		return len(diff) == 0 || rv.AtLeast(w.Version(), version), nil
	})
	if err != nil {
		return cmp.Or(context.Cause(ctx), fmt.Errorf("%w: %v", errBehind, diff))
	}
	return nil
}

// listPageFunc lists one page of the metadata of a type.
type listPageFunc func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)

// listAll lists the metadata of all objects at one version.
func (w WatchedCache) listAll(ctx context.Context, list listPageFunc) (all ObjectVersions, version string, err error) {
	all = ObjectVersions{}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := list(ctx, options)
		if err != nil {
			return nil, "", fmt.Errorf("list all %v: %w", w.target(), err)
		}
		version = page.ResourceVersion // the same in all pages
		for i := range page.Items {
			item := &page.Items[i]
			all[types.NamespacedName{Namespace: item.Namespace, Name: item.Name}] = ObjectVersion{item.UID, item.ResourceVersion}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return all, version, nil
		}
	}
}
