// Package serving is the HTTPS endpoint of a control plane component: health, metrics, configuration, flags, status and profiles, for whom
// the API server allows it.
//
//	Config (flags) ─▶ New (files are read, the port is bound) ─▶ Run (until its context ends)
//
// Clients are asked who they are as by any component of Kubernetes: by certificate, front proxy or token. The API server is asked about
// tokens (TokenReview) and rights (SubjectAccessReview), no more than its share, and publishes which certificates count. None of that ever
// stops the process, and health is answered without it.
//
// server.go is the life of the endpoint; tls.go has its certificates; auth.go decides about a request with reviews.go, which asks the API
// server, and clusterauth.go, which follows what it publishes; health.go and pages.go are what is served.
package serving
