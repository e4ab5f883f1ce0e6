// Package discovery finds the types that an API server serves. Controllers select types by a predicate, and
// each type has one version. A result is complete or names the group versions that are missing: a type that
// is missing from an incomplete result may still exist.
package discovery
