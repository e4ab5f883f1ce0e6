package controller

import (
	"container/heap"
	"time"
)

// manyKeys is the number of keys from which the memory of an empty queue is released. Maps and slices do
// not shrink.
const manyKeys = 1000

// byDeadline is the storage of a workqueue that returns the key with the earliest deadline, and equal
// deadlines in order of arrival. A key that is added again may move forward, never back. The workqueue
// calls it under its lock, and so does the scheduler for keys held aside.
type byDeadline[K comparable] struct {
	due    func(K) time.Time
	pushed uint64
	heap   deadlineHeap[K]
	latest map[K]waiting[K] // latest entry of each waiting key; other entries in the heap are outdated
}

// Touch is called for a waiting key that is added again.
func (q *byDeadline[K]) Touch(key K) {
	if q.due(key).Before(q.latest[key].due) {
		q.Push(key)
	}
}

func (q *byDeadline[K]) Push(key K) {
	q.pushed++
	w := waiting[K]{key, q.due(key), q.pushed}
	if q.latest == nil {
		q.latest = map[K]waiting[K]{}
	}
	q.latest[key] = w
	heap.Push(&q.heap, w)
}

func (q *byDeadline[K]) add(key K) {
	if _, waits := q.latest[key]; waits {
		q.Touch(key)
	} else {
		q.Push(key)
	}
}

func (q *byDeadline[K]) Len() int { return len(q.latest) }

func (q *byDeadline[K]) Pop() K {
	for {
		w := heap.Pop(&q.heap).(waiting[K])
		if q.latest[w.key].seq == w.seq {
			delete(q.latest, w.key)
			if len(q.latest) == 0 && cap(q.heap) > manyKeys {
				q.heap, q.latest = nil, nil
			}
			return w.key
		}
	}
}

type waiting[K comparable] struct {
	key K
	due time.Time
	seq uint64
}

type deadlineHeap[K comparable] []waiting[K]

func (h deadlineHeap[K]) Len() int      { return len(h) }
func (h deadlineHeap[K]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h deadlineHeap[K]) Less(i, j int) bool {
	if order := h[i].due.Compare(h[j].due); order != 0 {
		return order < 0
	}
	return h[i].seq < h[j].seq
}

func (h *deadlineHeap[K]) Push(x any) { *h = append(*h, x.(waiting[K])) }

func (h *deadlineHeap[K]) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = waiting[K]{} // release the key
	*h = (*h)[:last]
	return w
}
