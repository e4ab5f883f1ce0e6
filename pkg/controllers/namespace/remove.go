package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/internal/discovery"
)

// refusalsPerPage ends the deletion of objects one by one: something is wrong with more than those.
const refusalsPerPage = 10

// pageOf makes deletecollection take the objects of a page that was listed with the token. The first page has none and is told by its
// resource version. Without that the server would look for the newest state once more, for which it waits up to 100 ms
// if the type was read shortly before: its watch cache asks etcd no more often how far it has come.
func pageOf(page *metav1.PartialObjectMetadataList, token string, limit int64) metav1.ListOptions {
	options := metav1.ListOptions{Limit: limit, Continue: token}
	if token == "" && isVersion(page.ResourceVersion) {
		options.ResourceVersion, options.ResourceVersionMatch = page.ResourceVersion, metav1.ResourceVersionMatchExact
	}
	return options
}

// isVersion reports whether it is the version of a list, which the server can be asked for.
func isVersion(version string) bool { return version != "" && version != "0" }

// removePage deletes a page of objects: by deletecollection, and one by one if the server does not support that, or refuses. It may have refused
// one object only, for it stops at the first refusal. Missing support is not remembered, because a server gives the same answer when only
// the storage of this namespace is missing.
func (p *purger) removePage(ctx context.Context, r discovery.Type, page metav1.ListOptions, items []metav1.PartialObjectMetadata) error {
	select {
	case p.removals <- struct{}{}:
		defer func() { <-p.removals }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var err error
	if r.DeleteCollection {
		err = p.removeCollection(ctx, r, page)
		if page.ResourceVersion != "" && (apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsResourceExpired(err)) {
			// An aggregated server that does not know what to do with a resource version here, or does not keep any.
			err = p.removeCollection(ctx, r, metav1.ListOptions{Limit: page.Limit})
		}
		switch {
		case apierrors.IsResourceExpired(err): // the list that follows finds what is left
			return nil
		case ctx.Err() == nil && page.Limit > 1 && errors.Is(err, errTooLong): // likewise; the next page is smaller
			return nil
		case unsupported(err):
			err = nil
		case !refused(err):
			return err
		}
	}
	return p.removeEach(ctx, r, items, err)
}

// removeEach deletes objects one by one and goes on after refusals. all is the refusal of deletecollection, nil if the server does not support
// that. The order is random, or the objects behind the same refusals would never have their turn.
func (p *purger) removeEach(ctx context.Context, r discovery.Type, items []metav1.PartialObjectMetadata, all error) error {
	todo := slices.DeleteFunc(slices.Clone(items), func(o metav1.PartialObjectMetadata) bool { return !removable(o) })
	rand.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	var refusals []error
	for _, item := range todo {
		err := p.remove(ctx, r, item)
		switch {
		case err == nil || unsupported(err):
			continue
		case !refused(err):
			return fmt.Errorf("%s: %w", item.Name, err)
		}
		refusals = append(refusals, fmt.Errorf("%s: %w", item.Name, err))
		if len(refusals) == refusalsPerPage || p.clock.Now().After(p.until) {
			return cmp.Or(all, inWords(refusals)) // the text of all is the same in every pass
		}
	}
	return inWords(refusals)
}

// inWords makes one error of several, in the order of their texts, nil of none.
func inWords(errs []error) (all error) {
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	for _, err := range errs {
		if all == nil {
			all = err
			continue
		}
		all = fmt.Errorf("%w, %w", all, err)
	}
	return all
}

// mayDelete asks for the permission to delete, and waits for a slot.
func (p *purger) mayDelete(ctx context.Context) error {
	if p.permit != nil {
		if err := p.permit(); err != nil {
			return err
		}
	}
	return p.acquire(ctx)
}

// errTooLong: the server did not get through a page in time. What it did get through is done.
var errTooLong = errors.New("no answer in time")

func (p *purger) removeCollection(ctx context.Context, r discovery.Type, page metav1.ListOptions) error {
	if err := p.mayDelete(ctx); err != nil {
		return err
	}
	defer p.slots.Release(1)
	bounded, cancel := context.WithTimeout(ctx, removalPatience(page.Limit))
	defer cancel()
	begin := p.clock.Now()
	err := p.client.Resource(r.GroupVersionResource).Namespace(p.namespace).DeleteCollection(bounded, background(), page)
	took := p.clock.Since(begin)
	if ctx.Err() != nil {
		return err
	}
	p.strides.removed(r, page.Limit, took, err)
	if tooLong(err, took) && !refused(err) {
		return fmt.Errorf("%w: %w", errTooLong, err)
	}
	return err
}

func (p *purger) remove(ctx context.Context, r discovery.Type, item metav1.PartialObjectMetadata) error {
	if err := p.mayDelete(ctx); err != nil {
		return err
	}
	defer p.slots.Release(1)
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	options := background()
	if item.UID != "" {
		options.Preconditions = &metav1.Preconditions{UID: &item.UID}
	}
	err := p.client.Resource(r.GroupVersionResource).Namespace(p.namespace).Delete(ctx, item.Name, options)
	if apierrors.IsConflict(err) {
		return nil // another object of that name: the list that follows finds it
	}
	return err
}

// background leaves dependents to the garbage collector. No grace period is given, so pods get their own.
func background() metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
}

// unsupported reports whether the server does not serve the request at all, or not for these objects.
func unsupported(err error) bool {
	return apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// refused reports whether the server answered that it will not do this. No answer, a timeout and a request for patience are no refusals.
// Admission refuses with any status from 400 on; a webhook that could not be asked is a 500.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || unsupported(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code <= http.StatusInternalServerError
}
