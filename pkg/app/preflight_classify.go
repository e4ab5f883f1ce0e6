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

// classify says in one line what is wrong with a first request to server and what to do about it, and whether it will last.
// A server that is not there, overloaded or starting will not; a certificate, a password or a role does not change by itself. A load
// balancer without API servers behind it may answer anything: 404, 400, a page. It is waited for, with the advice in the log.
func classify(err error, server string) (reason error, lasting bool) {
	if missing := (*missingError)(nil); errors.As(err, &missing) {
		return err, true
	}
	if advice := tlsAdvice(err); advice != "" {
		return fmt.Errorf("API server %s: %w; %s", server, flagcheck.OneLine(err), advice), true
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("API server %s does not accept our credentials: %w; check the user in --kubeconfig, or the token of the "+
			"service account", server, flagcheck.OneLine(err)), true
	case apierrors.IsForbidden(err):
		return fmt.Errorf("API server %s forbids even to ask what is allowed: %w; bind our user to a role, see deploy/",
			server, flagcheck.OneLine(err)), true
	case strange(err):
		return fmt.Errorf("%s does not answer like a Kubernetes API server: %w; if this lasts, check the address in --kubeconfig and "+
			"--master", server, flagcheck.OneLine(err)), false
	}
	return fmt.Errorf("API server %s: %w", server, flagcheck.OneLine(err)), false
}

// tlsAdvice says what to do about an error of the TLS handshake; empty if err is none, or one that passes.
func tlsAdvice(err error) string {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		record   tls.RecordHeaderError
		op       *net.OpError
	)
	switch {
	case errors.As(err, &unknown):
		return "check certificate-authority in --kubeconfig, the server's certificate is signed by another"
	case errors.As(err, &hostname):
		return "check the address in --kubeconfig and --master, the server's certificate is for other names"
	case errors.As(err, &invalid):
		return "the server's certificate is not valid now, check it and the clock of this machine"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the address speaks no TLS, check it in --kubeconfig and --master"
	case errors.As(err, &op) && op.Op == "remote error":
		return "the server refused the TLS handshake, check the client certificate in --kubeconfig"
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
