// Package podkey identifies pods in queues by name and UID: a decision to evict or collect a pod must not
// reach a later pod with the same name.
package podkey
