package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/discovery"
)

// maxRejections ends the deletion of objects one by one. More rejections have a common cause.
const maxRejections = 10

// pageOf returns the options with which deletecollection takes the objects of a page. The first page has no
// continue token and is given by its resource version: for the latest version the server may wait up to 100 ms
// if the type was read shortly before.
func pageOf(page *metav1.PartialObjectMetadataList, token string, limit int64) metav1.ListOptions {
	options := metav1.ListOptions{Limit: limit, Continue: token}
	if token == "" && isVersion(page.ResourceVersion) {
		options.ResourceVersion, options.ResourceVersionMatch = page.ResourceVersion, metav1.ResourceVersionMatchExact
	}
	return options
}

func isVersion(version string) bool { return version != "" && version != "0" }

// removePage deletes a page of objects with deletecollection. If the server does not support or rejects that,
// removePage deletes the objects one by one: deletecollection stops at the first rejection. Missing support is
// not remembered, because the response is the same if only the storage of this namespace is missing.
func (p *purger) removePage(ctx context.Context, r discovery.Type, page metav1.ListOptions, items []metav1.PartialObjectMetadata) error {
	var err error
	if r.DeleteCollection {
		err = p.removeCollection(ctx, r, page)
		if page.ResourceVersion != "" && (apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsResourceExpired(err)) {
			// An aggregated server may not support the resource version, or may not keep any.
			err = p.removeCollection(ctx, r, metav1.ListOptions{Limit: page.Limit})
		}
		switch {
		case apierrors.IsResourceExpired(err): // the next list shows the remaining objects
			return nil
		case isUnsupported(err):
			err = nil
		case !isRejected(err):
			return err
		}
	}
	return p.removeEach(ctx, r, items, err)
}

// removeEach deletes objects one by one and continues after rejections. The order is random, so that every
// object is tried at some time. The returned text is the same in every pass: that of the rejected
// deletecollection after too many rejections, otherwise the first rejection by text.
func (p *purger) removeEach(ctx context.Context, r discovery.Type, items []metav1.PartialObjectMetadata, all error) error {
	var first error
	rejections := 0
	for _, i := range rand.Perm(len(items)) {
		if !isRemovable(items[i]) {
			continue
		}
		err := p.remove(ctx, r, items[i])
		if err == nil || isUnsupported(err) {
			continue
		}
		rejection := isRejected(err)
		err = fmt.Errorf("%s: %w", items[i].Name, err)
		if !rejection {
			return err
		}
		if first == nil || err.Error() < first.Error() {
			first = err
		}
		if rejections++; rejections == maxRejections {
			return cmp.Or(all, first)
		}
	}
	return first
}

// errTooLong wraps timeouts. A smaller page may succeed, and a deletecollection may have deleted a part of its page.
var errTooLong = errors.New("no response in time")

// errNoSlot ends a sync before the sync counts as stuck. It is a failure, unlike errBusy of the garbage collector:
// after a context.Canceled the conditions would not show the results of the other types.
var errNoSlot = errors.New("too many requests of other namespaces are in flight")

// send waits for a slot and sends a request.
func (p *purger) send(ctx context.Context, timeout time.Duration, request func(context.Context) error) error {
	switch {
	case controller.Draining(ctx):
		return controller.ErrDraining
	case p.noSlot.Load():
		return errNoSlot
	}
	waiting, stop := context.WithTimeout(ctx, slotTimeout)
	err := p.slots.Acquire(waiting, 1)
	stop()
	if err != nil {
		p.noSlot.Store(true)
		return cmp.Or(ctx.Err(), errNoSlot)
	}
	defer p.slots.Release(1)
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := p.Clock.Now()
	err = request(bounded)
	if err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled) || isRejected(err) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || p.Clock.Since(begin) >= minTimeout {
		return fmt.Errorf("%w: %w", errTooLong, err)
	}
	return err
}

// removeCollection gives a page less time than a write may take under the lease. A single object, and a type that
// cannot be listed, get as much as possible.
func (p *purger) removeCollection(ctx context.Context, r discovery.Type, page metav1.ListOptions) error {
	timeout := minTimeout
	if page.Limit <= 1 {
		timeout = maxTimeout
	}
	return p.send(ctx, timeout, func(ctx context.Context) error {
		return p.resource(r).DeleteCollection(ctx, backgroundOptions(), page)
	})
}

func (p *purger) remove(ctx context.Context, r discovery.Type, item metav1.PartialObjectMetadata) error {
	options := backgroundOptions()
	if item.UID != "" {
		options.Preconditions = &metav1.Preconditions{UID: &item.UID}
	}
	err := p.send(ctx, maxTimeout, func(ctx context.Context) error {
		return p.resource(r).Delete(ctx, item.Name, options)
	})
	if apierrors.IsConflict(err) {
		return nil // another object has the name: the next list shows that object
	}
	return err
}

// backgroundOptions leaves dependents to the garbage collector. Pods get their own grace period.
func backgroundOptions() metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
}

// isUnsupported reports whether the server does not serve the request.
func isUnsupported(err error) bool {
	return apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// isRejected reports whether the server rejected the request. A 504 and a 429 are not rejections.
// Admission rejects with any status from 400 on, and the status is 500 if a webhook fails.
func isRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || isUnsupported(err) || apierrors.IsTooManyRequests(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code <= http.StatusInternalServerError
}
