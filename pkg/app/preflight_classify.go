package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"minikcm/pkg/flagcheck"
)

// origin names what a Config was made from, so that advice is about something that its reader has.
type origin struct {
	name    string // of what holds the credentials
	address string // of the API server
	without string // how to run without some controllers
}

var (
	fromFlags   = origin{"--kubeconfig", "the address in --kubeconfig and --master", "switch off the controllers that need it with --controllers"}
	fromProgram = origin{"the rest.Config", "Host of the rest.Config", "leave out the controllers that need it"}
)

// classify says in one line what is wrong with a first request to server and what to do about it, and whether it will last.
// A server that is not there, overloaded or starting will not; a certificate, a password or a role does not change by itself. A load
// balancer without API servers behind it may answer anything: 404, 400, a page. It is waited for, with the advice in the log.
func classify(err error, server string, from origin) (reason error, lasting bool) {
	if missing := (*missingError)(nil); errors.As(err, &missing) {
		return fmt.Errorf("%w; grant it with a ClusterRole and its binding (deploy/ has them), or %s", err, from.without), true
	}
	if advice := from.tlsAdvice(err); advice != "" {
		return fmt.Errorf("API server %s: %w; %s", server, flagcheck.OneLine(err), advice), true
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("API server %s does not accept our credentials: %w; check the user in %s, or the token of the service account",
			server, flagcheck.OneLine(err), from.name), true
	case apierrors.IsForbidden(err):
		return fmt.Errorf("API server %s forbids even to ask what is allowed: %w; bind our user to a role, see deploy/",
			server, flagcheck.OneLine(err)), true
	case strange(err):
		return fmt.Errorf("%s does not answer like a Kubernetes API server: %w; if this lasts, check %s",
			server, flagcheck.OneLine(err), from.address), false
	}
	return fmt.Errorf("API server %s: %w", server, flagcheck.OneLine(err)), false
}

// tlsAdvice says what to do about an error of the TLS handshake; empty if err is none, or one that passes.
func (from origin) tlsAdvice(err error) string {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		record   tls.RecordHeaderError
		op       *net.OpError
	)
	switch {
	case errors.As(err, &unknown):
		return "check the certificate authority in " + from.name + ", the server's certificate is signed by another"
	case errors.As(err, &hostname):
		return "check " + from.address + ", the server's certificate is for other names"
	case errors.As(err, &invalid):
		return "the server's certificate is not valid now, check it and the clock of this machine"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the address speaks no TLS, check " + from.address
	case errors.As(err, &op) && op.Op == "remote error":
		return "the server refused the TLS handshake, check the client certificate in " + from.name
	}
	return ""
}

// strange says whether the answer is one that no API server of a supported version gives to the question.
func strange(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; {
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}
