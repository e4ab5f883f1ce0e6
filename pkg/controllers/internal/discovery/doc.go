// Package discovery reads which types an API server serves. Controllers for objects of all types select types
// by a predicate, and each type has one version. A result shows whether discovery was complete, and the
// failing group versions: a type of a failing group version may still exist.
package discovery
