package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

var errWithheld = errors.New("not sent: the cache may lack EndpointSlices")

// attempt is one call of the library for one Service.
type attempt struct {
	state    *state
	existing []*discoveryv1.EndpointSlice
	withhold bool // no write may be sent
	// send calls write with the context of the sync.
	send func(write func(context.Context) error) (outcome.Outcome, error)

	withheld bool  // a write was not sent
	err      error // first error of a write; the library keeps only its text
}

// newAttempt returns an attempt whose writes have the context of the sync. Writes are bounded, because client-go
// may repeat a write for minutes.
func newAttempt(ctx context.Context, st *state, existing []*discoveryv1.EndpointSlice, withhold bool) *attempt {
	return &attempt{state: st, existing: existing, withhold: withhold, send: func(write func(context.Context) error) (outcome.Outcome, error) {
		if controller.Draining(ctx) {
			return outcome.NotSent, controller.ErrDraining
		}
		bounded, cancel := context.WithTimeout(ctx, outcome.MaxCompletionDelay)
		defer cancel()
		return outcome.Do(bounded, write)
	}}
}

// do sends a write of a slice and records its outcome in the state.
func (a *attempt) do(verb, slice string, write func(context.Context) error) (outcome.Outcome, error) {
	if a.withhold {
		a.withheld = true
		return outcome.NotSent, errWithheld
	}
	result, err := a.send(write)
	if err == nil {
		return result, nil
	}
	if result == outcome.Unknown || result == outcome.Exists {
		a.state.uncertain = true
	}
	err = fmt.Errorf("%s EndpointSlice %s: %w", verb, slice, err)
	if a.err == nil {
		a.err = err
	}
	return result, err
}

// writer is the client of the library. The library passes no context to its writes, so the writer finds the
// attempt of a write by the Service.
type writer struct {
	kubernetes.Interface
	expect   func(version string) // announces a written version to the cache
	attempts sync.Map             // running *attempt by Service, a cache.ObjectName
}

// attemptOf returns the running attempt of the Service of a slice.
func (w *writer) attemptOf(slice *discoveryv1.EndpointSlice) *attempt {
	a, _ := w.attempts.Load(serviceOf(slice))
	return a.(*attempt)
}

// attemptWith returns the running attempt that has read a slice.
func (w *writer) attemptWith(namespace, slice string) (found *attempt) {
	w.attempts.Range(func(_, a any) bool {
		for _, s := range a.(*attempt).existing {
			if s.Namespace == namespace && s.Name == slice {
				found = a.(*attempt)
			}
		}
		return found == nil
	})
	return found
}

// DiscoveryV1 implements kubernetes.Interface.
func (w *writer) DiscoveryV1() discoveryclient.DiscoveryV1Interface {
	return groupWriter{w.Interface.DiscoveryV1(), w}
}

type groupWriter struct {
	discoveryclient.DiscoveryV1Interface
	*writer
}

// EndpointSlices implements discoveryclient.DiscoveryV1Interface.
func (g groupWriter) EndpointSlices(namespace string) discoveryclient.EndpointSliceInterface {
	return sliceWriter{g.DiscoveryV1Interface.EndpointSlices(namespace), g.writer, namespace}
}

type sliceWriter struct {
	discoveryclient.EndpointSliceInterface
	writer    *writer
	namespace string
}

// Create implements discoveryclient.EndpointSliceInterface. A create with unknown outcome is repeated under the
// same name, so that both make one slice.
func (s sliceWriter) Create(_ context.Context, slice *discoveryv1.EndpointSlice, o metav1.CreateOptions) (created *discoveryv1.EndpointSlice, err error) {
	a := s.writer.attemptOf(slice)
	if a.state.createName == "" {
		a.state.createName = names.SimpleNameGenerator.GenerateName(slice.GenerateName)
	}
	slice.Name = a.state.createName
	result, err := a.do("create", slice.Name, func(ctx context.Context) (err error) {
		created, err = s.EndpointSliceInterface.Create(ctx, slice, o)
		return err
	})
	if result == outcome.Done || result == outcome.Exists { // after any other the name may still be created
		a.state.createName = ""
	}
	if err != nil {
		return nil, err
	}
	s.writer.expect(created.ResourceVersion)
	return created, nil
}

// Update implements discoveryclient.EndpointSliceInterface.
func (s sliceWriter) Update(_ context.Context, slice *discoveryv1.EndpointSlice, o metav1.UpdateOptions) (updated *discoveryv1.EndpointSlice, err error) {
	_, err = s.writer.attemptOf(slice).do("update", slice.Name, func(ctx context.Context) (err error) {
		updated, err = s.EndpointSliceInterface.Update(ctx, slice, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.writer.expect(updated.ResourceVersion)
	return updated, nil
}

// Delete implements discoveryclient.EndpointSliceInterface.
func (s sliceWriter) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	_, err := s.writer.attemptWith(s.namespace, name).do("delete", name, func(ctx context.Context) error {
		return s.EndpointSliceInterface.Delete(ctx, name, o)
	})
	return err
}
