//go:build tools

// Package etcd pins the etcd server the development control plane stores its objects in.
package etcd

import _ "go.etcd.io/etcd/server/v3"
