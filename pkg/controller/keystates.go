package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// KeyStates holds the state that a controller keeps per key during a term. An object that is created again
// under the same key gets a new state. A state belongs to the sync of its key; fields that other goroutines
// read are written in Update and read in ForEach.
type KeyStates[K comparable, S any] struct {
	newState func() *S

	lock  sync.Mutex
	byKey map[K]keyState[S]
}

type keyState[S any] struct {
	uid   types.UID
	state *S
}

// NewKeyStates returns an empty set of states.
func NewKeyStates[K comparable, S any](newState func() *S) *KeyStates[K, S] {
	return &KeyStates[K, S]{newState: newState, byKey: map[K]keyState[S]{}}
}

// For returns the state of the object with this key and UID.
func (s *KeyStates[K, S]) For(key K, uid types.UID) *S {
	s.lock.Lock()
	defer s.lock.Unlock()
	known := s.byKey[key]
	if known.state == nil || known.uid != uid {
		known = keyState[S]{uid, s.newState()}
		s.byKey[key] = known
	}
	return known.state
}

// Update calls update with the state of a key, if there is one, while no ForEach runs.
func (s *KeyStates[K, S]) Update(key K, update func(*S)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if known := s.byKey[key]; known.state != nil {
		update(known.state)
	}
}

// Len returns the number of states.
func (s *KeyStates[K, S]) Len() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.byKey)
}

// ForEach calls visit with every state, for metrics.
func (s *KeyStates[K, S]) ForEach(visit func(*S)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, known := range s.byKey {
		visit(known.state)
	}
}

// Delete forgets the state of a key that has no object.
func (s *KeyStates[K, S]) Delete(key K) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.byKey, key)
}

// Reset forgets all states. A new term calls it.
func (s *KeyStates[K, S]) Reset() {
	s.lock.Lock()
	defer s.lock.Unlock()
	clear(s.byKey)
}
