// Package nodestatus reads the conditions of nodes.
package nodestatus
