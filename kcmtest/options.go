package kcmtest

import (
	"time"

	"github.com/go-logr/logr"
)

// Option configures [Start] and [Run].
type Option func(*settings)

// settings are all options together.
type settings struct {
	controllers []string
	podsReady   bool
	grace       time.Duration
	log         logr.Logger
}

func newSettings(options []Option) *settings {
	s := &settings{
		controllers: []string{"namespace", "garbagecollector", "replicaset", "deployment"},
		log:         logr.Discard(),
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// Controllers selects the controllers by items of the flag --controllers of the program: "namespace",
// "garbagecollector", "replicaset", "deployment", "nodelifecycle" and so on. The default is the first four.
func Controllers(names ...string) Option {
	return func(s *settings) { s.controllers = names }
}

// NamespaceGrace is the time between the deletion of a namespace and the deletion of the content other than pods. The
// default, 0, suits a single API server and means 100 ms. Tests with several API servers on the same etcd need 5 s,
// the value of kube-controller-manager.
func NamespaceGrace(d time.Duration) Option {
	return func(s *settings) { s.grace = d }
}

// Log sets the logger of the controllers. The default discards all lines. The controllers write no line after the end
// of the test.
func Log(logger logr.Logger) Option {
	return func(s *settings) { s.log = logger }
}
