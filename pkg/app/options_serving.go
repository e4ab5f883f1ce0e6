package app

import (
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// ServingOptions are the flags of the HTTPS endpoint.
type ServingOptions struct {
	BindAddress    net.IP
	SecurePort     int
	CertDir        string
	CertFile       string
	KeyFile        string
	SNICertKeys    []cliflag.NamedCertKey
	CipherSuites   []string
	Curves         []int32
	MinTLSVersion  string
	HTTP2Streams   int
	DisableHTTP2   bool
	SharePort      bool
	ShareAddresses bool
}

// AuthenticationOptions are the flags that say who a client of the endpoint is.
type AuthenticationOptions struct {
	Kubeconfig            string
	SkipLookup            bool
	TolerateLookupFailure bool
	TokenCacheTTL         time.Duration
	ClientCAFile          string
	RequestHeader         RequestHeaderOptions
}

// RequestHeaderOptions describe a front proxy that authenticates for us.
type RequestHeaderOptions struct {
	ClientCAFile        string
	AllowedNames        []string
	UsernameHeaders     []string
	UIDHeaders          []string
	GroupHeaders        []string
	ExtraHeaderPrefixes []string
}

// AuthorizationOptions are the flags that say what a client of the endpoint may do.
type AuthorizationOptions struct {
	Kubeconfig       string
	AlwaysAllowPaths []string
	AllowedTTL       time.Duration
	DeniedTTL        time.Duration
}

func defaultServingOptions() ServingOptions {
	return ServingOptions{BindAddress: net.IPv4zero, SecurePort: 10257}
}

func defaultAuthenticationOptions() AuthenticationOptions {
	return AuthenticationOptions{
		TokenCacheTTL: 10 * time.Second,
		RequestHeader: RequestHeaderOptions{
			UsernameHeaders:     []string{"x-remote-user"},
			GroupHeaders:        []string{"x-remote-group"},
			ExtraHeaderPrefixes: []string{"x-remote-extra-"},
		},
	}
}

func defaultAuthorizationOptions() AuthorizationOptions {
	return AuthorizationOptions{
		AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"},
		AllowedTTL:       10 * time.Second,
		DeniedTTL:        10 * time.Second,
	}
}

func (o *ServingOptions) addFlags(fs *pflag.FlagSet) {
	fs.IPVar(&o.BindAddress, "bind-address", o.BindAddress, "Address to listen on; 0.0.0.0 or :: for all interfaces.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "Port to serve HTTPS on. 0 serves nothing at all.")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir,
		"Directory of the serving certificate, "+certName+".crt and .key, which are created if missing. "+
			"Empty: a certificate is created in memory. Not used with --tls-cert-file.")
	fs.StringVar(&o.CertFile, "tls-cert-file", o.CertFile,
		"Serving certificate and its chain, PEM. Reloaded when the file changes.")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "Private key of --tls-cert-file, PEM.")
	fs.Var(cliflag.NewNamedCertKeyArray(&o.SNICertKeys), "tls-sni-cert-key",
		"certificate,key[:names] to serve to clients that ask for one of these names; without names those in the certificate. May be repeated.")
	fs.StringSliceVar(&o.CipherSuites, "tls-cipher-suites", o.CipherSuites,
		"TLS 1.2 cipher suites to offer; empty: Go's choice.\nGood: "+strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+
			".\nInsecure: "+strings.Join(cliflag.InsecureTLSCipherNames(), ", ")+".")
	fs.Int32SliceVar(&o.Curves, "tls-curve-preferences", o.Curves,
		"Key exchanges to offer, as numbers of Go's crypto/tls.CurveID; empty: Go's choice.")
	fs.StringVar(&o.MinTLSVersion, "tls-min-version", o.MinTLSVersion,
		"Minimum TLS version to accept: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+". Empty: VersionTLS12.")
	fs.IntVar(&o.HTTP2Streams, "http2-max-streams-per-connection", o.HTTP2Streams,
		"Requests that one HTTP/2 connection may have open. 0: 100.")
	fs.BoolVar(&o.DisableHTTP2, "disable-http2-serving", o.DisableHTTP2, "Serve HTTP/1.1 only.")
	fs.BoolVar(&o.SharePort, "permit-port-sharing", o.SharePort,
		"Let other processes listen on the same address and port (SO_REUSEPORT).")
	fs.BoolVar(&o.ShareAddresses, "permit-address-sharing", o.ShareAddresses,
		"Let other processes listen on the same port of another address, and do not wait for closed connections (SO_REUSEADDR).")
}

func (o *AuthenticationOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "authentication-kubeconfig", o.Kubeconfig,
		"Kubeconfig of the API server that validates tokens (TokenReview) and publishes the client CA. Empty: the pod's "+
			"service account; without one every token is refused.")
	fs.BoolVar(&o.SkipLookup, "authentication-skip-lookup", o.SkipLookup,
		"Do not read client CAs from ConfigMap kube-system/extension-apiserver-authentication.")
	fs.BoolVar(&o.TolerateLookupFailure, "authentication-tolerate-lookup-failure", o.TolerateLookupFailure,
		"Accepted for compatibility with existing manifests, without effect: an unreadable ConfigMap never stops this manager.")
	fs.DurationVar(&o.TokenCacheTTL, "authentication-token-webhook-cache-ttl", o.TokenCacheTTL,
		"How long the API server's answer about a token is cached. 0 asks every time.")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"Certificates signed by these CAs identify clients: common name is the user, organizations are the groups. Reloaded when the file changes.")
	o.RequestHeader.addFlags(fs)
}

func (o *RequestHeaderOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ClientCAFile, "requestheader-client-ca-file", o.ClientCAFile,
		"A client with a certificate signed by these CAs is a front proxy whose headers name the user. Reloaded when the file changes.")
	fs.StringSliceVar(&o.AllowedNames, "requestheader-allowed-names", o.AllowedNames,
		"Common names that a front proxy may have. Empty: any that --requestheader-client-ca-file signed.")
	fs.StringSliceVar(&o.UsernameHeaders, "requestheader-username-headers", o.UsernameHeaders,
		"Headers with the user's name; the first with a value counts.")
	fs.StringSliceVar(&o.UIDHeaders, "requestheader-uid-headers", o.UIDHeaders, "Headers with the user's UID.")
	fs.StringSliceVar(&o.GroupHeaders, "requestheader-group-headers", o.GroupHeaders, "Headers with the user's groups.")
	fs.StringSliceVar(&o.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", o.ExtraHeaderPrefixes,
		"Prefixes of headers with further attributes of the user.")
}

func (o *AuthorizationOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "authorization-kubeconfig", o.Kubeconfig,
		"Kubeconfig of the API server that decides what a client may do (SubjectAccessReview). Empty: the pod's service "+
			"account; without one only --authorization-always-allow-paths and system:masters are served.")
	fs.StringSliceVar(&o.AlwaysAllowPaths, "authorization-always-allow-paths", o.AlwaysAllowPaths,
		"Paths that anybody can get; exact, or ending in *.")
	fs.DurationVar(&o.AllowedTTL, "authorization-webhook-cache-authorized-ttl", o.AllowedTTL,
		"How long the API server's answer 'allowed' is cached. 0 asks every time.")
	fs.DurationVar(&o.DeniedTTL, "authorization-webhook-cache-unauthorized-ttl", o.DeniedTTL,
		"How long the API server's answer 'not allowed' is cached. 0 asks every time.")
}
