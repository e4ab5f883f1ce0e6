package kcmtest

import (
	"time"

	"github.com/go-logr/logr"
)

// Option changes what is run, and how.
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

// Controllers says which controllers run, by the names that --controllers of the program takes: "namespace", "garbagecollector", "replicaset",
// "deployment", "nodelifecycle" and so on. Without it the first four run.
func Controllers(names ...string) Option {
	return func(s *settings) { s.controllers = names }
}

// NamespaceGrace is how long the content of a namespace, other than its pods, is left alone after the namespace was deleted. The default, 0, is for
// exactly one API server and means 100 ms. Tests with several API servers on one etcd need 5 s, as kube-controller-manager has.
func NamespaceGrace(d time.Duration) Option {
	return func(s *settings) { s.grace = d }
}

// Log is where the controllers log to; without it they log nothing. Nothing is logged once the test has ended.
func Log(logger logr.Logger) Option {
	return func(s *settings) { s.log = logger }
}
