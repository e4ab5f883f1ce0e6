// Package faults is a TLS reverse proxy in front of an API server whose faults a test scripts.
package faults
