package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
)

var errWatchEnded = errors.New("the API server ended the watch")

func follow(ctx context.Context, w watch.Interface, last func(watch.Event) bool) (time.Time, error) {
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case event, open := <-w.ResultChan():
			now := time.Now()
			switch {
			case !open:
				return time.Time{}, errWatchEnded
			case event.Type == watch.Error:
				return time.Time{}, fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			case last(event):
				return now, nil
			}
		}
	}
}

// nth is true for the nth event of a kind.
func nth(n int, kind watch.EventType) func(watch.Event) bool {
	return func(e watch.Event) bool {
		if e.Type == kind {
			n--
		}
		return n == 0
	}
}

// lister is the part of a typed client that a watch needs.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func watchFromNow[L interface {
	runtime.Object
	metav1.ListInterface
}](ctx context.Context, client lister[L], options metav1.ListOptions) (watch.Interface, error) {
	first := options
	first.Limit = 1
	list, err := client.List(ctx, first)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	// The API server ends the watch of a slow reader, such as this program on a busy machine.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), resumable{
		func(ctx context.Context, at metav1.ListOptions) (watch.Interface, error) {
			at.FieldSelector = options.FieldSelector
			return client.Watch(ctx, at)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return w, nil
}

type resumable struct {
	open func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (r resumable) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return r.open(ctx, options)
}

func (r *rig) watchPods(ctx context.Context, namespace string) (watch.Interface, error) {
	return watchFromNow(ctx, r.client.CoreV1().Pods(namespace), metav1.ListOptions{})
}
