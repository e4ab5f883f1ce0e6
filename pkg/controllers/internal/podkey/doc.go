// Package podkey is the key of queues whose work is about one pod for good: a decision to evict or collect a pod must never meet
// another pod that has come to bear its name.
package podkey
