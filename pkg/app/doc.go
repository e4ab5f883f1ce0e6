// Package app turns a command line into a running controller manager.
package app
