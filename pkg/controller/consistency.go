package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"minikcm/internal/rv"
	"minikcm/pkg/caches"
)

const (
	// ConsistencyTimeout is the time after which a key is read live if the caches still do not show the
	// writes of this process.
	ConsistencyTimeout = 30 * time.Second
	// ConsistencyRecheck is the requeue delay of a key whose caches lag. Events may be missing: an object can
	// be created and deleted between two lists.
	ConsistencyRecheck = time.Second
	// baselineRetry is the delay between attempts to read a baseline.
	baselineRetry = time.Second
)

// Cache is the cache of one type, such as caches.Pods.
type Cache interface {
	Resource() schema.GroupResource
	// Version returns the resourceVersion that the cache has reached; it is empty before the first list.
	Version() string
	// Expect announces a version that the cache has to reach.
	Expect(version string)
}

// Versions holds resourceVersions of types.
type Versions map[schema.GroupResource]string

// VersionsOf returns the versions that caches have reached. Objects that are read from the caches later are
// at least as new.
func VersionsOf(caches ...Cache) Versions {
	versions := Versions{}
	for _, c := range caches {
		versions[c.Resource()] = c.Version()
	}
	return versions
}

// Baseline holds the resourceVersions of some types at the start of a term. Only this process has led
// since, so caches that have reached the baseline show every write of earlier leaders. The zero value is an
// unknown baseline. Reset and Read are for Run of the controller; ReachedBy may be called from any
// goroutine.
type Baseline struct {
	versions atomic.Pointer[Versions] // nil if unknown
}

// Reset forgets the baseline. A new term calls it.
func (b *Baseline) Reset() { b.versions.Store(nil) }

// ReachedBy reports whether caches at these versions have reached the baseline. It returns false if the
// baseline is unknown or versions cannot be compared.
func (b *Baseline) ReachedBy(at Versions) bool {
	known := b.versions.Load()
	if known == nil {
		return false
	}
	for resource, version := range *known {
		if !rv.AtLeast(at[resource], version) {
			return false
		}
	}
	return true
}

// Read reads the current versions of types. It returns after a success or at the end of the term.
func (b *Baseline) Read(ctx context.Context, reads ...caches.VersionRead) {
	_ = wait.PollUntilContextCancel(ctx, baselineRetry, true, func(ctx context.Context) (bool, error) {
		versions := Versions{}
		for _, read := range reads {
			resource, version, err := read(ctx)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("Deciding first writes on live reads, the versions at the start of the term are unknown",
					"err", err)
				return false, nil
			}
			versions[resource] = version
		}
		b.versions.Store(&versions)
		return true, nil
	})
}

// ErrOutdated is the error of a sync whose objects have changed, or were deleted or replaced, since they were read.
// The caches will show the change.
var ErrOutdated = errors.New("object has changed since it was read")

// NotReadyError is the error of a sync that has to wait for the caches. It is an ErrOutdated.
type NotReadyError struct {
	Missing []schema.GroupResource // types whose caches lack writes of this process
}

// Unwrap serves errors.Is.
func (e *NotReadyError) Unwrap() error { return ErrOutdated }

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("caches do not show the writes of this process yet: %v", e.Missing)
}

// ConsistencyBarrier records the writes for one key, and keeps the key from being decided on caches that do
// not show the writes. The zero value has no writes. A barrier belongs to the sync of its key and is not safe
// for concurrent use.
type ConsistencyBarrier struct {
	required Versions  // the highest version written or read live, by type
	since    time.Time // start of ConsistencyTimeout: the first required version or the last live read
	waiting  time.Time // time of the first sync that had to wait

	verified     bool // a live read was made in this term
	listResource schema.GroupResource
	listVersion  string
	listed       map[types.UID]struct{} // objects of the last live list; nil once the cache has reached its version
}

// RequireVersion records a version at which this process wrote or read an object, and announces the version to the
// cache. An empty version is ignored.
func (b *ConsistencyBarrier) RequireVersion(c Cache, version string, now time.Time) {
	if version == "" {
		return
	}
	c.Expect(version)
	if len(b.required) == 0 {
		b.required, b.since = Versions{}, now
	}
	known, ok := b.required[c.Resource()]
	if !ok || rv.Newer(version, known) { // a version that cannot be compared is kept: the key is overdue then
		b.required[c.Resource()] = version
	}
}

// EnsureReady returns nil if caches at these versions show every recorded write, and a NotReadyError if the
// key has to wait. After ConsistencyTimeout, or if versions cannot be compared, overdue is true and the key
// has to be read live.
func (b *ConsistencyBarrier) EnsureReady(at Versions, now time.Time) (overdue bool, err error) {
	if b.listed != nil && !rv.Newer(b.listVersion, at[b.listResource]) {
		b.listed = nil
	}
	var missing []schema.GroupResource
	ordered := true
	for resource, version := range b.required {
		if !rv.AtLeast(at[resource], version) {
			missing = append(missing, resource)
			ordered = ordered && rv.Newer(version, at[resource])
		}
	}
	if len(missing) == 0 {
		b.required, b.waiting = nil, time.Time{}
		return false, nil
	}
	// The sync that wrote may itself have taken longer than the timeout, so the caches get a recheck after that.
	rechecked := !b.waiting.IsZero() && now.Sub(b.waiting) >= ConsistencyRecheck
	if b.waiting.IsZero() {
		b.waiting = now
	}
	if !ordered || rechecked && now.Sub(b.since) >= ConsistencyTimeout {
		return true, nil
	}
	return false, &NotReadyError{missing}
}

// Pending reports whether the caches may lack recorded writes.
func (b *ConsistencyBarrier) Pending() bool { return len(b.required) > 0 }

// RecordLiveRead records a live read of an owner and a consistent list of its objects. The caches have to
// reach both, within another ConsistencyTimeout.
func RecordLiveRead[T metav1.Object](b *ConsistencyBarrier, owners Cache, owner metav1.Object,
	objects Cache, list []T, listVersion string, now time.Time) {
	b.verified, b.since, b.waiting = true, now, time.Time{}
	b.RequireVersion(owners, owner.GetResourceVersion(), now)
	b.listResource, b.listVersion, b.listed = objects.Resource(), listVersion, make(map[types.UID]struct{}, len(list))
	for _, object := range list {
		b.RequireVersion(objects, object.GetResourceVersion(), now)
		b.listed[object.GetUID()] = struct{}{}
	}
}

// DeletedBeforeList reports whether the last live list proves that a cached object is deleted: the list lacks
// the object and is not older. The object must match the selector of the list. The cache cannot wait for a
// deletion, which has no version.
func (b *ConsistencyBarrier) DeletedBeforeList(object metav1.Object) bool {
	_, listed := b.listed[object.GetUID()]
	return b.listed != nil && !listed && rv.AtLeast(b.listVersion, object.GetResourceVersion())
}

// Loader loads the objects of one key and decides on them. T is the input of a sync, D its decision.
type Loader[T, D any] struct {
	Baseline *Baseline
	// Cached returns the input with the objects that the caches hold.
	Cached func(T) T
	// Live returns the input with the objects that the API server holds. It calls RecordLiveRead.
	Live func(context.Context, T) (T, error)
	// Decide plans the writes. It may adopt and release objects.
	Decide func(context.Context, T) (D, error)
	// Writes reports whether the decision changes the cluster.
	Writes func(T, D) bool
	// Unconfirmed reports whether the controller has a reason of its own to repeat a decision on a live read.
	Unconfirmed func(T, D) bool
}

// LoadConsistent is the common first half of a reconcile. It returns the objects of a key and the decision
// on them:
//
//  1. The key waits until caches at the versions show what this process wrote ([ConsistencyBarrier]). The
//     error is a NotReadyError.
//  2. The decision is made on the caches, unless these are overdue.
//  3. The decision is made on a live read if the caches are overdue, if the decision is the first of
//     the term that writes and the caches may lack writes of an earlier leader ([Baseline]), or if it is
//     Unconfirmed.
//
// The versions must have been read before the owner of the key was.
func (l *Loader[T, D]) LoadConsistent(ctx context.Context, b *ConsistencyBarrier, at Versions, now time.Time, in T) (T, D, error) {
	var decision D
	overdue, err := b.EnsureReady(at, now)
	if err != nil {
		return in, decision, err
	}
	if !overdue {
		in = l.Cached(in)
		if decision, err = l.Decide(ctx, in); err != nil {
			return in, decision, err
		}
		unverified := !b.verified && !l.Baseline.ReachedBy(at) && l.Writes(in, decision)
		if !unverified && !l.Unconfirmed(in, decision) {
			return in, decision, nil
		}
	}
	if in, err = l.Live(ctx, in); err != nil {
		return in, decision, err
	}
	decision, err = l.Decide(ctx, in)
	return in, decision, err
}
