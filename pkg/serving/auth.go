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
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"minikcm/pkg/flagcheck"
	"minikcm/pkg/kubeclient"
)

// auth decides who a client is and what it may do. Both questions are passed on to the API server, except where a certificate,
// an always-allowed path or system:masters answers them.
type auth struct {
	who       authenticator.Request
	may       *authorizer
	clientCAs []dynamiccertificates.CAContentProvider // whose certificates clients may present
	lookup    *clusterAuth                            // nil: nothing is read from the cluster
	unasked   []string                                // flags without which nobody is asked about tokens, or rights
}

// frontProxy says how a trusted proxy tells us who its client is.
type frontProxy struct {
	ca                                                       dynamiccertificates.CAContentProvider
	allowedNames, usernames, uids, groups, extraHeaderPrefix headerrequest.StringSliceProvider
}

// newAuth builds both halves. Without a kubeconfig and outside a pod there is no API server to ask: tokens are not
// understood then, and only what needs no question is allowed.
func newAuth(cfg Config, deps Deps) (*auth, error) {
	authn, authz := cfg.Authentication, cfg.Authorization
	authnClient, err := reviewClient(deps.Name, "authentication-kubeconfig", authn.Kubeconfig)
	if err != nil {
		return nil, err
	}
	authzClient, err := reviewClient(deps.Name, "authorization-kubeconfig", authz.Kubeconfig)
	if err != nil {
		return nil, err
	}
	a := &auth{may: newAuthorizer(authz, authzClient, newReviewer(deps.Clock))}
	if authnClient == nil {
		a.unasked = append(a.unasked, "authentication-kubeconfig")
	}
	if authzClient == nil {
		a.unasked = append(a.unasked, "authorization-kubeconfig")
	}
	if authnClient != nil && !authn.SkipLookup && (authn.ClientCAFile == "" || authn.RequestHeader.ClientCAFile == "") {
		if a.lookup, err = newClusterAuth(authnClient); err != nil {
			return nil, err
		}
	}
	clientCA, proxy, err := a.trusted(authn)
	if err != nil {
		return nil, err
	}
	var tokens authenticator.Token
	if authnClient != nil {
		tokens = newTokenReviewer(authnClient, authn.TokenCacheTTL, newReviewer(deps.Clock))
	}
	a.who = newAuthenticator(clientCA, proxy, tokens)
	return a, nil
}

// reviewClient builds a client for reviews, or none if there is nobody to ask.
func reviewClient(program, flag, file string) (kubernetes.Interface, error) {
	cfg, err := kubeclient.Load(flag, file, "")
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(reviewConfig(cfg, program))
	if err != nil {
		return nil, fmt.Errorf("--%s=%s: %w", flag, file, flagcheck.OneLine(err))
	}
	return client, nil
}

// reviewConfig makes cfg fit for reviews and for watching. It has no Timeout, which would cut a watch as well: reviews bring a deadline of
// their own. It has no rate, which would make requests wait instead of refusing them.
func reviewConfig(cfg *rest.Config, program string) *rest.Config {
	cfg.UserAgent = kubeclient.UserAgent(program)
	cfg.Timeout, cfg.QPS = 0, -1
	return cfg
}

// trusted collects the CAs of clients and front proxies: files first, else what the cluster publishes.
func (a *auth) trusted(authn AuthenticationConfig) (dynamiccertificates.CAContentProvider, *frontProxy, error) {
	var clientCA dynamiccertificates.CAContentProvider
	var proxy *frontProxy
	if file := authn.ClientCAFile; file != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", file)
		if err != nil {
			return nil, nil, fmt.Errorf("--client-ca-file: %w", flagcheck.OneLine(err))
		}
		clientCA = ca
	} else if a.lookup != nil {
		clientCA = a.lookup.clientCA
	}
	if h := authn.RequestHeader; h.ClientCAFile != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("request-header", h.ClientCAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("--requestheader-client-ca-file: %w", flagcheck.OneLine(err))
		}
		proxy = &frontProxy{
			ca:                ca,
			allowedNames:      trimmed(h.AllowedNames),
			usernames:         trimmed(h.UsernameHeaders),
			uids:              trimmed(h.UIDHeaders),
			groups:            trimmed(h.GroupHeaders),
			extraHeaderPrefix: trimmed(h.ExtraHeaderPrefixes),
		}
	} else if a.lookup != nil {
		proxy = a.lookup.frontProxy()
	}
	if clientCA != nil {
		a.clientCAs = append(a.clientCAs, clientCA)
	}
	if proxy != nil {
		a.clientCAs = append(a.clientCAs, proxy.ca)
	}
	return clientCA, proxy, nil
}

func trimmed(values []string) headerrequest.StaticStringSlice {
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, strings.TrimSpace(v))
	}
	return out
}

// anonymous is who a client is that presents nothing.
var anonymous = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}}, true, nil
})

// newAuthenticator asks in upstream's order: front proxy, client certificate, token, and then takes the client for
// anonymous. A credential that is wrong is an error, never anonymous. Any argument may be nil.
func newAuthenticator(clientCA dynamiccertificates.CAContentProvider, proxy *frontProxy, tokens authenticator.Token) authenticator.Request {
	var chain []authenticator.Request
	if proxy != nil {
		chain = append(chain, headerrequest.NewDynamicVerifyOptionsSecure(proxy.ca.VerifyOptions,
			proxy.allowedNames, proxy.usernames, proxy.uids, proxy.groups, proxy.extraHeaderPrefix))
	}
	if clientCA != nil {
		chain = append(chain, x509.NewDynamic(clientCA.VerifyOptions, x509.CommonNameUserConversion))
	}
	if tokens != nil {
		chain = append(chain, bearertoken.New(tokens))
	}
	if len(chain) == 0 {
		return anonymous
	}
	return union.NewFailOnError(group.NewAuthenticatedGroupAdder(union.New(chain...)), anonymous)
}

// protect lets only those requests through to next whose sender is known, or anonymous, and allowed to send it.
func (a *auth) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache, private") // answers depend on who asks
		log := klog.FromContext(r.Context())
		who, ok, err := a.who.AuthenticateRequest(r)
		if errors.Is(err, errTooManyReviews) {
			tellToWait(w)
			return
		}
		if err != nil || !ok {
			log.V(1).Info("Client not authenticated", "path", r.URL.Path, "remote", r.RemoteAddr, "err", err)
			writeStatus(w, apierrors.NewUnauthorized("Unauthorized").Status())
			return
		}
		r.Header.Del("Authorization")
		verb := strings.ToLower(r.Method)
		allowed, reason, err := a.may.allowed(r.Context(), who.User, verb, r.URL.Path)
		switch {
		case errors.Is(err, errTooManyReviews):
			tellToWait(w)
		case err != nil:
			log.Error(err, "Ask the API server whether a client is allowed", "user", who.User.GetName(), "path", r.URL.Path)
			writeStatus(w, apierrors.NewInternalError(errors.New("cannot find out whether this is allowed")).Status())
		case !allowed:
			log.V(4).Info("Client not allowed", "user", who.User.GetName(), "verb", verb, "path", r.URL.Path, "reason", reason)
			writeStatus(w, forbidden(who.User.GetName(), verb, r.URL.Path, reason))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// tellToWait answers a request that would need one question to the API server too many.
func tellToWait(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	writeStatus(w, apierrors.NewTooManyRequests(errTooManyReviews.Error(), 1).Status())
}

func forbidden(name, verb, path, reason string) metav1.Status {
	message := fmt.Sprintf("forbidden: User %q cannot %s path %q", name, verb, path)
	if reason != "" {
		message += ": " + reason
	}
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: message, Details: &metav1.StatusDetails{},
	}
}

// writeStatus answers the way an API server does, which its clients know how to show.
func writeStatus(w http.ResponseWriter, status metav1.Status) {
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // the client went away
}

// recovered turns a panic of one request into an answer and a log entry. http.ErrAbortHandler is passed on: it is no failure but how a
// handler asks net/http to drop the connection, and net/http takes it without a word.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				klog.FromContext(r.Context()).Error(fmt.Errorf("panic: %v", p), "Serve request",
					"method", r.Method, "path", r.URL.Path, "stack", string(debug.Stack()))
				http.Error(w, "internal server error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
