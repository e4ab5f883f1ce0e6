package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/pkg/internal/fakeapi"
	"minikcm/pkg/kubeclient"
)

func TestClassify(t *testing.T) {
	gr := schema.GroupResource{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}
	status := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: "m"}}
	}
	through := func(err error) error { return &url.Error{Op: "Post", URL: "https://h/apis", Err: err} }
	for _, tt := range []struct {
		name    string
		err     error
		lasting bool
		want    string
	}{
		{"refused", through(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), false, "connection refused"},
		{"reset", through(syscall.ECONNRESET), false, "connection reset"},
		{"timeout", through(context.DeadlineExceeded), false, "deadline exceeded"},
		{"name not known yet", through(&net.DNSError{Err: "no such host", IsNotFound: true}), false, "no such host"},
		{"server busy", apierrors.NewTooManyRequests("wait", 1), false, "wait"},
		{"server starting", apierrors.NewServiceUnavailable("starting"), false, "starting"},
		{"server broken", apierrors.NewInternalError(errors.New("etcd")), false, "etcd"},
		{"server slow", apierrors.NewTimeoutError("slow", 1), false, "slow"},
		{"gateway", status(502), false, "m"},
		{"wrong CA", through(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), true, "check certificate-authority in --kubeconfig"},
		{"wrong name", through(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}), true, "check the address"},
		{"expired", through(x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{}}), true, "the clock of this machine"},
		{"no TLS there", through(http.ErrSchemeMismatch), true, "speaks no TLS"},
		{"handshake refused", through(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), true, "check the client certificate"},
		{"who are you", apierrors.NewUnauthorized("Unauthorized"), true, "does not accept our credentials"},
		{"forbidden", apierrors.NewForbidden(gr, "", errors.New("no")), true, "forbids even to ask"},
		{"load balancer without backends", status(404), false, "does not answer like a Kubernetes API server"},
		{"another one, or plain HTTP sent to TLS", status(400), false, "does not answer like a Kubernetes API server"},
		{"rights missing", &missingError{user: "user u", missing: []string{"create pods"}}, true, "user u is not allowed to: create pods; grant"},
		{"several lines become one", errors.New("a\n\tb"), false, "a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reason, lasting := classify(tt.err, "https://h")
			if lasting != tt.lasting || !strings.Contains(reason.Error(), tt.want) || strings.Contains(reason.Error(), "\n") {
				t.Errorf("classify(%v) = %q, lasting %v; want one line with %q, lasting %v", tt.err, reason, lasting, tt.want, tt.lasting)
			}
			if !errors.Is(reason, tt.err) {
				t.Error("the cause is not wrapped")
			}
		})
	}
}

// restConfig reaches api, but for what change alters in the kubeconfig; nil alters nothing.
func restConfig(t *testing.T, api *fakeapi.Server, change func(*clientcmdapi.Config)) *rest.Config {
	t.Helper()
	cfg, err := kubeclient.Load("kubeconfig", api.Kubeconfig(t, change), "")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newPreflighter(t *testing.T, cfg *rest.Config) (*preflighter, *clocktesting.FakeClock) {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout, cfg.QPS = time.Second, -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	return &preflighter{client: client, server: cfg.Host, clock: clk}, clk
}

var testNeeds = []access{
	{resource: "pods", verbs: []string{"create", "list"}},
	{group: "apps", resource: "replicasets/status", verbs: []string{"update"}},
	{group: "coordination.k8s.io", resource: "leases", namespace: "kube-system", name: "controller-manager", verbs: []string{"get"}},
}

func TestPreflightRights(t *testing.T) {
	api := fakeapi.New(t)
	all := []string{"create pods", "list pods", "update replicasets.apps/status", "get leases.coordination.k8s.io controller-manager in kube-system"}
	p, _ := newPreflighter(t, restConfig(t, api, nil))
	for _, tt := range []struct {
		name    string
		allowed []string
		want    string // empty: nothing is missing
		asked   int
	}{
		{"everything", []string{"* *.*"}, "", 1},
		{"just enough", all, "", 5},
		{"one missing", all[1:], "user manager is not allowed to: create pods; grant it", 5},
		{"several missing, sorted", all[:1], "is not allowed to: get leases.coordination.k8s.io controller-manager in kube-system, list pods, update replicasets.apps/status; grant it", 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api.Set(func(f *fakeapi.Server) { f.Allowed, f.Asked = tt.allowed, nil })
			err := p.run(t.Context(), testNeeds)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("preflight = %v, want %q", err, tt.want)
			}
			if got := api.Count("self"); got != tt.asked {
				t.Errorf("%d questions, want %d", got, tt.asked)
			}
		})
	}
}

// What does not get better by waiting ends the preflight at the first answer: no clock is advanced here.
func TestPreflightFailsAtOnce(t *testing.T) {
	api := fakeapi.New(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for _, tt := range []struct {
		name   string
		status int
		change func(*clientcmdapi.Config)
		want   string
	}{
		{"unauthorized", 401, nil, "does not accept our credentials"},
		{"forbidden", 403, nil, "forbids even to ask"},
		{"another CA", 0, func(c *clientcmdapi.Config) {
			c.Clusters["c"].CertificateAuthorityData = fakeapi.NewCA(t, "other").PEM
		}, "certificate signed by unknown authority; check certificate-authority"},
		{"another name", 0, func(c *clientcmdapi.Config) {
			c.Clusters["c"].TLSServerName = "elsewhere.invalid"
		}, "the server's certificate is for other names"},
		{"TLS to a plain server", 0, func(c *clientcmdapi.Config) {
			c.Clusters["c"].Server = "https://" + plain.Listener.Addr().String()
		}, "speaks no TLS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api.Set(func(f *fakeapi.Server) { f.Status = tt.status })
			p, _ := newPreflighter(t, restConfig(t, api, tt.change))
			err := p.run(t.Context(), testNeeds)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("preflight = %v, want one line with %q", err, tt.want)
			}
		})
	}
}

// stepping advances the clock whenever somebody waits on it, until the test ends.
func stepping(t *testing.T, clk *clocktesting.FakeClock) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if clk.HasWaiters() {
					clk.Step(preflightPause)
				}
			}
		}
	}()
}

func TestPreflightWaits(t *testing.T) {
	t.Run("for a load balancer that has no API server behind it", func(t *testing.T) {
		for _, code := range []int{http.StatusBadRequest, http.StatusNotFound} {
			api := fakeapi.New(t)
			api.Set(func(f *fakeapi.Server) { f.Status, f.Allowed = code, []string{"* *.*"} })
			p, clk := newPreflighter(t, restConfig(t, api, nil))
			stepping(t, clk)
			start := clk.Now()
			done := make(chan error, 1)
			go func() { done <- p.run(t.Context(), testNeeds) }()
			eventually(t, func() error {
				if clk.Since(start) < 2*preflightSettle && len(done) == 0 {
					return errors.New("neither a minute has passed nor an end been made")
				}
				return nil
			})
			api.Set(func(f *fakeapi.Server) { f.Status = 0 })
			if err := <-done; err != nil {
				t.Errorf("preflight after a minute of %d = %v, want nil", code, err)
			}
		}
	})
	t.Run("for a server that starts", func(t *testing.T) {
		api := fakeapi.New(t)
		api.Set(func(f *fakeapi.Server) { f.Status = 503 })
		p, clk := newPreflighter(t, restConfig(t, api, nil))
		stepping(t, clk)
		start := clk.Now()
		done := make(chan error, 1)
		go func() { done <- p.run(t.Context(), testNeeds) }()
		eventually(t, func() error {
			if clk.Since(start) < time.Minute {
				return errors.New("less than a minute has passed")
			}
			return nil
		})
		// It answers, but has not made its roles yet; that is no reason to give up for a while.
		api.Set(func(f *fakeapi.Server) { f.Status = 403 })
		answered := clk.Now()
		eventually(t, func() error {
			if clk.Since(answered) < 10*time.Second {
				return errors.New("less than ten seconds have passed")
			}
			return nil
		})
		select {
		case err := <-done:
			t.Fatalf("gave up on a server that is starting: %v", err)
		default:
		}
		api.Set(func(f *fakeapi.Server) { f.Status = 0; f.Allowed = []string{"* *.*"} })
		if err := <-done; err != nil {
			t.Errorf("preflight = %v, want nil", err)
		}
	})
	t.Run("and gives up when it is up and goes on to refuse", func(t *testing.T) {
		api := fakeapi.New(t)
		api.Set(func(f *fakeapi.Server) { f.Status = 503 })
		p, clk := newPreflighter(t, restConfig(t, api, nil))
		done := make(chan error, 1)
		go func() { done <- p.run(t.Context(), testNeeds) }()
		eventually(t, func() error {
			if !clk.HasWaiters() {
				return errors.New("not waiting yet")
			}
			return nil
		})
		api.Set(func(f *fakeapi.Server) { f.Status = 403 })
		stepping(t, clk)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "forbids even to ask") {
			t.Errorf("preflight = %v, want it to give up", err)
		}
	})
	t.Run("until it is told to stop", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		_ = listener.Close() // nobody listens there any more
		p, clk := newPreflighter(t, &rest.Config{Host: "https://" + address})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.run(ctx, testNeeds) }()
		eventually(t, func() error {
			if !clk.HasWaiters() {
				return errors.New("not waiting yet")
			}
			return nil
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("preflight = %v, want %v", err, context.Canceled)
		}
	})
}

func TestRequired(t *testing.T) {
	o := parsed(t, "--kubeconfig="+minimalKubeconfig(t), "--leader-elect-resource-name=n", "--leader-elect-resource-namespace=ns")
	cfg, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	words := func(cfg Config) []string {
		var out []string
		for _, a := range required(cfg) {
			for _, verb := range a.verbs {
				out = append(out, verb+" "+a.String())
			}
		}
		slices.Sort(out)
		return out
	}
	all := words(cfg)
	if dup := len(all) - len(slices.Compact(slices.Clone(all))); dup != 0 {
		t.Errorf("%d questions are asked twice", dup)
	}
	for _, want := range []string{"create leases.coordination.k8s.io in ns", "get leases.coordination.k8s.io n in ns", "create pods", "create events"} {
		if !slices.Contains(all, want) {
			t.Errorf("%q is not among what is required: %q", want, all)
		}
	}
	none := cfg
	none.Controllers, none.Election.Enabled = nil, false
	for _, word := range words(none) {
		if !strings.HasSuffix(word, " events") {
			t.Errorf("without controllers and election %q is required", word)
		}
	}
}

func TestAccessString(t *testing.T) {
	for want, a := range map[string]access{
		"pods":             {resource: "pods"},
		"pods/status":      {resource: "pods/status"},
		"replicasets.apps": {group: "apps", resource: "replicasets"},
		"a.g/s n in ns":    {group: "g", resource: "a/s", name: "n", namespace: "ns"},
		"*.*":              {group: "*", resource: "*"},
		"/apis":            {nonResource: "/apis"},
		"x in y":           {resource: "x", namespace: "y"},
	} {
		if got := a.String(); got != want {
			t.Errorf("%+v is called %q, want %q", a, got, want)
		}
	}
}
