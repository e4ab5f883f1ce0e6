// Package serving is the HTTPS endpoint of a control plane component: health, metrics, configuration,
// flags, status and profiles.
//
//	Config (flags) ─▶ New (reads files, binds the port) ─▶ Run (until its context ends)
//
// Clients are authenticated as in every component of Kubernetes: by certificate, front proxy or token. The
// API server reviews tokens (TokenReview) and access (SubjectAccessReview), at a limited rate, and
// publishes the trusted certificate authorities. An unavailable API server never stops the process, and
// health paths need no API server.
//
// server.go holds the endpoint, tls.go the certificates, auth.go and reviews.go the authentication and
// authorization of requests, health.go and pages.go the pages.
package serving
