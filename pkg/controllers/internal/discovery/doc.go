// Package discovery asks an API server which types it serves. Controllers that work on objects of all types choose theirs by a predicate, and
// each type comes in one version. An answer says whether it is complete, and which group versions are missing from it if it is not: what was not
// shown need not be gone.
package discovery
