package serving

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"minikcm/pkg/flagcheck"
	"minikcm/pkg/kubeclient"
)

// The API server publishes the certificate authorities that it trusts in this ConfigMap.
const (
	authConfigMapNamespace = metav1.NamespaceSystem
	authConfigMapName      = "extension-apiserver-authentication"
)

// auth authenticates and authorizes clients. The API server reviews tokens and access, except for
// certificates, always allowed paths and members of system:masters.
type auth struct {
	authenticator authenticator.Request
	authorizer    *authorizer
	clientCAs     []dynamiccertificates.CAContentProvider // of the certificates that clients may present
	// headers follows the ConfigMap. It is nil if the headers of front proxies are flags. Package
	// dynamiccertificates runs the CAs.
	headers *headerrequest.RequestHeaderAuthRequestController
	missing []string // errors of reviews that have no API server
}

// newAuth returns an auth. Without a kubeconfig and a service account no API server reviews clients: tokens are
// ignored, and access that needs a review is denied, as upstream.
func newAuth(cfg Config, deps Deps) (*auth, error) {
	a := &auth{}
	client := func(flag, file string) (kubernetes.Interface, error) {
		rc, err := kubeclient.Load(flag, file, "")
		if err != nil && file == "" {
			a.missing = append(a.missing, err.Error())
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		// A Timeout would cut watches, so reviews have a deadline. A rate would delay reviews instead of
		// rejecting them.
		rc.UserAgent, rc.Timeout, rc.QPS = kubeclient.UserAgent(deps.Name), 0, -1
		c, err := kubernetes.NewForConfig(rc)
		if err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", flag, file, flagcheck.OneLine(err))
		}
		return c, nil
	}
	authn, err := client("authentication-kubeconfig", cfg.Authentication.Kubeconfig)
	if err != nil {
		return nil, err
	}
	authz, err := client("authorization-kubeconfig", cfg.Authorization.Kubeconfig)
	if err != nil {
		return nil, err
	}
	a.authorizer, err = newAuthorizer(cfg.Authorization, authz, deps.Clock)
	if err != nil {
		return nil, err
	}

	// The order is upstream's: front proxy, client certificate, token.
	lookup := authn
	if cfg.Authentication.SkipLookup {
		lookup = nil
	}
	var chain []authenticator.Request
	proxy, err := a.frontProxy(cfg.Authentication.RequestHeader, lookup)
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		chain = append(chain, proxy)
	}
	clientCA, err := a.authority("client-ca-file", cfg.Authentication.ClientCAFile, lookup)
	if err != nil {
		return nil, err
	}
	if clientCA != nil {
		chain = append(chain, x509.NewDynamic(clientCA.VerifyOptions, x509.CommonNameUserConversion))
	}
	if authn != nil {
		chain = append(chain, bearertoken.New(newTokenReviewer(authn, cfg.Authentication.TokenCacheTTL, deps.Clock)))
	}
	a.authenticator = anonymous
	if len(chain) > 0 { // an invalid credential is an error, never anonymous
		a.authenticator = union.NewFailOnError(group.NewAuthenticatedGroupAdder(union.New(chain...)), anonymous)
	}
	return a, nil
}

// authority returns a certificate authority from the file of a flag, or from the key of the ConfigMap with the
// same name. It returns nil without file and client. Before the first read of the ConfigMap no certificate is
// trusted. The last values stay in force while the ConfigMap is missing or invalid.
func (a *auth) authority(flag, file string, client kubernetes.Interface) (dynamiccertificates.CAContentProvider, error) {
	var ca dynamiccertificates.CAContentProvider
	var err error
	switch {
	case file != "":
		ca, err = dynamiccertificates.NewDynamicCAContentFromFile(flag, file)
	case client != nil:
		ca, err = dynamiccertificates.NewDynamicCAFromConfigMapController(flag, authConfigMapNamespace, authConfigMapName, flag, client)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, flagcheck.OneLine(err))
	}
	a.clientCAs = append(a.clientCAs, ca)
	return ca, nil
}

// frontProxy returns the authenticator of users that a front proxy names in headers, or nil without a certificate
// authority. The names of the headers come from flags if the file is set, else from the ConfigMap.
func (a *auth) frontProxy(h RequestHeaderConfig, client kubernetes.Interface) (authenticator.Request, error) {
	ca, err := a.authority("requestheader-client-ca-file", h.ClientCAFile, client)
	if err != nil || ca == nil {
		return nil, err
	}
	if h.ClientCAFile != "" {
		return headerrequest.NewDynamicVerifyOptionsSecure(ca.VerifyOptions, trimmed(h.AllowedNames), trimmed(h.UsernameHeaders),
			trimmed(h.UIDHeaders), trimmed(h.GroupHeaders), trimmed(h.ExtraHeaderPrefixes)), nil
	}
	a.headers = headerrequest.NewRequestHeaderAuthRequestController(authConfigMapName, authConfigMapNamespace, client, "requestheader-username-headers",
		"requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix", "requestheader-allowed-names")
	type value = headerrequest.StringSliceProviderFunc
	return headerrequest.NewDynamicVerifyOptionsSecure(ca.VerifyOptions, value(a.headers.AllowedClientNames), value(a.headers.UsernameHeaders),
		value(a.headers.UIDHeaders), value(a.headers.GroupHeaders), value(a.headers.ExtraHeaderPrefixes)), nil
}

func trimmed(values []string) headerrequest.StaticStringSlice {
	out := make(headerrequest.StaticStringSlice, 0, len(values))
	for _, v := range values {
		out = append(out, strings.TrimSpace(v))
	}
	return out
}

// anonymous authenticates clients without credentials.
var anonymous = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}}, true, nil
})

// protect passes a request to next if the client is authenticated, or anonymous, and allowed to send the request.
func (a *auth) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache, private") // responses depend on the client
		log := klog.FromContext(r.Context())
		client, ok, err := a.authenticator.AuthenticateRequest(r)
		if errors.Is(err, errTooManyReviews) {
			writeTooManyRequests(w)
			return
		}
		if err != nil || !ok {
			log.V(1).Info("Client not authenticated", "path", r.URL.Path, "remote", r.RemoteAddr, "err", err)
			writeStatus(w, apierrors.NewUnauthorized("Unauthorized").Status())
			return
		}
		r.Header.Del("Authorization")
		verb := strings.ToLower(r.Method)
		allowed, reason, err := a.authorizer.allowed(r.Context(), client.User, verb, r.URL.Path)
		switch {
		case errors.Is(err, errTooManyReviews):
			writeTooManyRequests(w)
		case err != nil:
			log.Error(err, "Review access of a client", "user", client.User.GetName(), "path", r.URL.Path)
			writeStatus(w, apierrors.NewInternalError(errors.New("access cannot be reviewed")).Status())
		case !allowed:
			log.V(4).Info("Client not allowed", "user", client.User.GetName(), "verb", verb, "path", r.URL.Path, "reason", reason)
			message := fmt.Sprintf("User %q cannot %s path %q", client.User.GetName(), verb, r.URL.Path)
			if reason != "" {
				message += ": " + reason
			}
			writeStatus(w, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(message)).Status())
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func writeTooManyRequests(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	writeStatus(w, apierrors.NewTooManyRequests(errTooManyReviews.Error(), 1).Status())
}

// writeStatus writes the response of an API server, which clients can show.
func writeStatus(w http.ResponseWriter, status metav1.Status) {
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // fails if the client has closed the connection
}

// recovered turns a panic of one request into a response and a log entry.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				klog.FromContext(r.Context()).Error(fmt.Errorf("panic: %v", p), "Serve request",
					"method", r.Method, "path", r.URL.Path, "stack", string(debug.Stack()))
				http.Error(w, "internal server error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
