package serving

import (
	"math"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authorization/path"
	cliflag "k8s.io/component-base/cli/flag"

	"minikcm/pkg/flagcheck"
)

// Config configures the HTTPS endpoint.
type Config struct {
	BindAddress net.IP
	Port        int // 0 means no endpoint
	// SharePort and ShareAddresses are SO_REUSEPORT and SO_REUSEADDR.
	SharePort      bool
	ShareAddresses bool

	TLS            TLSConfig
	Authentication AuthenticationConfig
	Authorization  AuthorizationConfig

	Profiling           bool // serve /debug/pprof and /debug/flags/v
	ContentionProfiling bool // needs Profiling

	// Feature gates of the program decide about these two pages.
	Flagz   bool // serve /flagz
	Statusz bool // serve /statusz
	// Flags are shown by /flagz, except hidden ones and the values of those that are annotated "classified".
	Flags cliflag.NamedFlagSets
	// EmulationVersion is shown by /statusz.
	EmulationVersion string
}

// TLSConfig configures the serving certificates. Without files and directory the certificate is self-signed
// and in memory.
type TLSConfig struct {
	CertDir           string
	CertFile, KeyFile string // take precedence over CertDir
	SNI               []cliflag.NamedCertKey

	MinVersion   string   // names of crypto/tls such as VersionTLS13; empty means VersionTLS12
	CipherSuites []string // names of crypto/tls; empty means Go's choice
	Curves       []int32  // numbers of crypto/tls.CurveID; empty means Go's choice

	HTTP2Streams int // open requests of one connection; 0 means 100
	DisableHTTP2 bool
}

// AuthenticationConfig configures the authentication of clients.
type AuthenticationConfig struct {
	Kubeconfig    string // empty means the pod's service account, or no API server
	SkipLookup    bool
	TokenCacheTTL time.Duration
	ClientCAFile  string // empty means the CA that the cluster publishes
	RequestHeader RequestHeaderConfig
}

// RequestHeaderConfig describes a front proxy that authenticates clients.
type RequestHeaderConfig struct {
	ClientCAFile        string // empty means that the cluster publishes the CA and the other fields
	AllowedNames        []string
	UsernameHeaders     []string
	UIDHeaders          []string
	GroupHeaders        []string
	ExtraHeaderPrefixes []string
}

// AuthorizationConfig configures the authorization of clients.
type AuthorizationConfig struct {
	Kubeconfig       string   // empty means the pod's service account, or no API server
	AlwaysAllowPaths []string // exact, or ending in *
	AllowedTTL       time.Duration
	DeniedTTL        time.Duration
}

// DefaultConfig returns kube-controller-manager v1.37's defaults.
func DefaultConfig() Config {
	return Config{
		BindAddress: net.IPv4zero,
		Port:        10257,
		Authentication: AuthenticationConfig{
			TokenCacheTTL: 10 * time.Second,
			RequestHeader: RequestHeaderConfig{
				UsernameHeaders:     []string{"x-remote-user"},
				GroupHeaders:        []string{"x-remote-group"},
				ExtraHeaderPrefixes: []string{"x-remote-extra-"},
			},
		},
		Authorization: AuthorizationConfig{
			AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"},
			AllowedTTL:       10 * time.Second,
			DeniedTTL:        10 * time.Second,
		},
		Profiling: true,
	}
}

// AddFlags binds the flags to c, in kube-controller-manager's sections: debugging, secure serving,
// authentication and authorization. The values of c are the defaults.
func (c *Config) AddFlags(sections *cliflag.NamedFlagSets) {
	debugging := sections.FlagSet("debugging")
	debugging.BoolVar(&c.Profiling, "profiling", c.Profiling,
		"Serve /debug/pprof and /debug/flags/v to authorized clients.")
	debugging.BoolVar(&c.ContentionProfiling, "contention-profiling", c.ContentionProfiling,
		"Record where goroutines block on locks. Needs --profiling.")
	c.addServingFlags(sections.FlagSet("secure serving"))
	c.Authentication.addFlags(sections.FlagSet("authentication"))
	c.Authorization.addFlags(sections.FlagSet("authorization"))
}

func (c *Config) addServingFlags(fs *pflag.FlagSet) {
	fs.IPVar(&c.BindAddress, "bind-address", c.BindAddress, "Address to listen on. 0.0.0.0 and :: mean all interfaces.")
	fs.IntVar(&c.Port, "secure-port", c.Port, "Port of the HTTPS endpoint. 0 disables the endpoint.")
	fs.BoolVar(&c.SharePort, "permit-port-sharing", c.SharePort,
		"Let other processes listen on the same address and port (SO_REUSEPORT).")
	fs.BoolVar(&c.ShareAddresses, "permit-address-sharing", c.ShareAddresses,
		"Let other processes listen on the same port of another address, and reuse the port of closed connections (SO_REUSEADDR).")
	c.TLS.addFlags(fs)
}

func (c *TLSConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.CertDir, "cert-dir", c.CertDir,
		"Directory of the serving certificate, "+certName+".crt and .key. Missing files are created. "+
			"Empty: the certificate is created in memory. Not used with --tls-cert-file.")
	fs.StringVar(&c.CertFile, "tls-cert-file", c.CertFile,
		"Serving certificate and its chain, PEM. Reloaded when the file changes.")
	fs.StringVar(&c.KeyFile, "tls-private-key-file", c.KeyFile, "Private key of --tls-cert-file, PEM.")
	fs.Var(cliflag.NewNamedCertKeyArray(&c.SNI), "tls-sni-cert-key",
		"certificate,key[:names] for clients that request one of these server names. Without names the names of the certificate apply. May be repeated.")
	fs.StringSliceVar(&c.CipherSuites, "tls-cipher-suites", c.CipherSuites,
		"TLS 1.2 cipher suites to offer; empty: Go's choice.\nGood: "+strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+
			".\nInsecure: "+strings.Join(cliflag.InsecureTLSCipherNames(), ", ")+".")
	fs.Int32SliceVar(&c.Curves, "tls-curve-preferences", c.Curves,
		"Key exchanges to offer, as numbers of Go's crypto/tls.CurveID; empty: Go's choice.")
	fs.StringVar(&c.MinVersion, "tls-min-version", c.MinVersion,
		"Minimum TLS version to accept: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+". Empty: VersionTLS12.")
	fs.IntVar(&c.HTTP2Streams, "http2-max-streams-per-connection", c.HTTP2Streams,
		"Maximum of open requests of one HTTP/2 connection. 0: 100.")
	fs.BoolVar(&c.DisableHTTP2, "disable-http2-serving", c.DisableHTTP2, "Serve HTTP/1.1 only.")
}

func (c *AuthenticationConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "authentication-kubeconfig", c.Kubeconfig,
		"Kubeconfig of the API server that validates tokens (TokenReview) and publishes the client CA. Empty: the pod's "+
			"service account; without a service account tokens are ignored.")
	fs.BoolVar(&c.SkipLookup, "authentication-skip-lookup", c.SkipLookup,
		"Do not read client CAs from ConfigMap kube-system/extension-apiserver-authentication.")
	fs.Bool("authentication-tolerate-lookup-failure", false,
		"Accepted, without effect: an unreadable ConfigMap is always tolerated.")
	fs.DurationVar(&c.TokenCacheTTL, "authentication-token-webhook-cache-ttl", c.TokenCacheTTL,
		"Time that the result of a TokenReview is cached. 0 disables the cache.")
	fs.StringVar(&c.ClientCAFile, "client-ca-file", c.ClientCAFile,
		"Certificates signed by these CAs identify clients: common name is the user, organizations are the groups. Reloaded when the file changes.")
	c.RequestHeader.addFlags(fs)
}

func (c *RequestHeaderConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.ClientCAFile, "requestheader-client-ca-file", c.ClientCAFile,
		"Certificates signed by these CAs identify front proxies, whose headers name the user. Reloaded when the file changes.")
	fs.StringSliceVar(&c.AllowedNames, "requestheader-allowed-names", c.AllowedNames,
		"Allowed common names of front proxies. Empty: all certificates signed by --requestheader-client-ca-file.")
	fs.StringSliceVar(&c.UsernameHeaders, "requestheader-username-headers", c.UsernameHeaders,
		"Headers with the user's name; the first with a value counts.")
	fs.StringSliceVar(&c.UIDHeaders, "requestheader-uid-headers", c.UIDHeaders, "Headers with the user's UID.")
	fs.StringSliceVar(&c.GroupHeaders, "requestheader-group-headers", c.GroupHeaders, "Headers with the user's groups.")
	fs.StringSliceVar(&c.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", c.ExtraHeaderPrefixes,
		"Prefixes of headers with further attributes of the user.")
}

func (c *AuthorizationConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "authorization-kubeconfig", c.Kubeconfig,
		"Kubeconfig of the API server that authorizes clients (SubjectAccessReview). Empty: the pod's service "+
			"account; without a service account only --authorization-always-allow-paths and system:masters are served.")
	fs.StringSliceVar(&c.AlwaysAllowPaths, "authorization-always-allow-paths", c.AlwaysAllowPaths,
		"Paths that every client may read. Exact, or with * at the end.")
	fs.DurationVar(&c.AllowedTTL, "authorization-webhook-cache-authorized-ttl", c.AllowedTTL,
		"Time that an allowed SubjectAccessReview is cached. 0 disables the cache.")
	fs.DurationVar(&c.DeniedTTL, "authorization-webhook-cache-unauthorized-ttl", c.DeniedTTL,
		"Time that a denied SubjectAccessReview is cached. 0 disables the cache.")
}

// Validate returns every problem, each with the name of the flag. It sends no request and reads no file.
func (c *Config) Validate() []error {
	var p flagcheck.Problems
	if c.Port < 0 || c.Port > math.MaxUint16 {
		p.Addf("secure-port", "%d must be between 0 and 65535, inclusive; 0 switches serving off", c.Port)
	}
	_, errs := c.TLS.parse()
	p = append(p, errs...)
	p = append(p, c.Authentication.validate()...)
	p = append(p, c.Authorization.validate()...)
	return p
}

func (c *AuthenticationConfig) validate() []error {
	var p flagcheck.Problems
	p.NotNegative("authentication-token-webhook-cache-ttl", c.TokenCacheTTL)
	h := c.RequestHeader
	p.NotBlank("requestheader-allowed-names", h.AllowedNames)
	p.NotBlank("requestheader-username-headers", h.UsernameHeaders)
	p.NotBlank("requestheader-uid-headers", h.UIDHeaders)
	p.NotBlank("requestheader-group-headers", h.GroupHeaders)
	p.NotBlank("requestheader-extra-headers-prefix", h.ExtraHeaderPrefixes)
	return p
}

func (c *AuthorizationConfig) validate() []error {
	var p flagcheck.Problems
	p.NotNegative("authorization-webhook-cache-authorized-ttl", c.AllowedTTL)
	p.NotNegative("authorization-webhook-cache-unauthorized-ttl", c.DeniedTTL)
	if _, err := path.NewAuthorizer(c.AlwaysAllowPaths); err != nil {
		p.Addf("authorization-always-allow-paths", "%v", err)
	}
	return p
}
