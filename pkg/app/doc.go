// Package app turns options into a running controller manager. The command line is in package command. Global
// state of a process is changed only by [Options.UseGatesForLibraries] and [Config.OwnProcess], which are for
// package command, by ContentionProfiling of [Config.Serving], and by the metrics of library k8s.io/endpointslice.
//
//	flags ─▶ Options ─Complete─▶ Config ─▶ Run (stages) ─▶ server, caches, election, controllers
//
// Flags are bound to the configuration of their part: to a field of [Options], or to the Config of a
// controller, of leader election or of serving. [Options.Validate] returns every problem at once, each with
// the name of its flag or group. [Options.Complete] returns the [Config] of a manager. Names, sections and defaults
// of flags are kube-controller-manager's, so that its static pod manifest works; docs/flags.md lists them
// and marks other defaults.
//
// controllers.go holds the list of controllers. preflight.go checks, before caches are filled, that the API
// server can be reached and allows the requests of the controllers. Another program begins with
// [DefaultConfig].
package app
