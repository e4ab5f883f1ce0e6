// Package nodestatus reads the conditions in a node's status.
package nodestatus
