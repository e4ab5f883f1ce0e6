package app

import "github.com/spf13/cobra"

// Name is the program's name on the command line and in user agents.
const Name = "controller-manager"

// NewCommand returns the controller-manager command.
func NewCommand() *cobra.Command {
	return &cobra.Command{Use: Name}
}
