// Package app turns options into a running controller manager. The command line itself is in package command. Nothing here touches what a process has
// only once, unless it is asked to: by [Options.UseGatesForLibraries], and by [Config.OwnProcess], which are for package command.
//
// The way through the package:
//
//	flags ─▶ Options ─Validate─▶ Config ─▶ Run (stages) ─▶ server, caches, election, controllers
//
// Flags fill [Options]. [Options.Validate] reports every problem at once, each naming its flag. [Options.Config] turns valid options
// into a [Config] that nobody changes afterwards. Each controller binds its own flags to its own Config, and so does package serving; what
// works with a Config does not know that flags exist. Flag names, section names and defaults are kube-controller-manager's, so that its static pod manifest can be taken over; docs/flags.md lists
// them and says where a default differs on purpose.
//
// controllers.go holds the one visible list of controllers. preflight.go asks the API server, before caches are filled,
// whether it can be reached and whether it lets us do what the controllers will do. A program of one's own begins with [DefaultConfig].
package app
