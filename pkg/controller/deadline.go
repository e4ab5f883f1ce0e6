package controller

import (
	"container/heap"
	"time"
)

// byDeadline is the storage of a workqueue that hands out the key with the earliest deadline first, and of equal ones the one that
// was pushed first. The workqueue calls it under its lock.
type byDeadline[K comparable] struct {
	due    func(K) time.Time
	pushed uint64
	heap   deadlineHeap[K]
}

func (q *byDeadline[K]) Touch(K) {}

func (q *byDeadline[K]) Push(key K) {
	q.pushed++
	heap.Push(&q.heap, waiting[K]{key, q.due(key), q.pushed})
}

func (q *byDeadline[K]) Len() int { return len(q.heap) }

func (q *byDeadline[K]) Pop() K { return heap.Pop(&q.heap).(waiting[K]).key }

type waiting[K comparable] struct {
	key K
	due time.Time
	seq uint64
}

// deadlineHeap is a heap.Interface.
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
	(*h)[last] = waiting[K]{} // the array must not keep the key
	*h = (*h)[:last]
	return w
}
