package controller

// newestFirst is the storage of a workqueue that returns the key that was added last.
type newestFirst[K comparable] struct{ keys []K }

func (q *newestFirst[K]) Touch(K)    {}
func (q *newestFirst[K]) Push(key K) { q.keys = append(q.keys, key) }
func (q *newestFirst[K]) Len() int   { return len(q.keys) }

func (q *newestFirst[K]) Pop() K {
	last := len(q.keys) - 1
	key := q.keys[last]
	if q.keys = q.keys[:last]; last == 0 {
		q.keys = nil // release the memory of many keys
	}
	return key
}

// heldAside holds keys in order of arrival, each once.
type heldAside[K comparable] struct {
	keys  []K
	known map[K]bool
}

func (a *heldAside[K]) add(key K) {
	if a.known == nil {
		a.known = map[K]bool{}
	}
	if !a.known[key] {
		a.known[key] = true
		a.keys = append(a.keys, key)
	}
}

func (a *heldAside[K]) pop() K {
	key := a.keys[0]
	delete(a.known, key)
	if a.keys = a.keys[1:]; len(a.keys) == 0 {
		a.keys, a.known = nil, nil // release the memory of many keys
	}
	return key
}
