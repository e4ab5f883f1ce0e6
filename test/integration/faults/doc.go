// Package faults tries the fault proxy on what it is for: client-go in front of a real API server.
package faults
