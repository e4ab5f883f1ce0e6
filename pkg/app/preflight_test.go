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

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
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
		{"wrong CA", through(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), true, "check the certificate authority in --kubeconfig"},
		{"wrong name", through(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}), true, "check the address"},
		{"expired", through(x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{}}), true, "the clock of this machine"},
		{"no TLS there", through(http.ErrSchemeMismatch), true, "speaks no TLS"},
		{"handshake refused", through(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), true, "check the client certificate"},
		{"who are you", apierrors.NewUnauthorized("Unauthorized"), true, "does not accept our credentials"},
		{"forbidden", apierrors.NewForbidden(gr, "", errors.New("no")), true, "forbids access reviews"},
		{"load balancer without backends", status(404), false, "does not respond like a Kubernetes API server"},
		{"another one, or plain HTTP sent to TLS", status(400), false, "does not respond like a Kubernetes API server"},
		{"rights missing", &missing{process: "user u", needs: []need{{permission: permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods"}}, impacts: []string{"no pods"}}}}, true, "user u is not allowed to: create pods (no pods); grant"},
		{"several lines become one", errors.New("a\n\tb"), false, "a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reason, lasting := classifyProblem(tt.err, "https://h", commandAdvice)
			if lasting != tt.lasting || !strings.Contains(reason.Error(), tt.want) || strings.Contains(reason.Error(), "\n") {
				t.Errorf("classifyProblem(%v) = %q, lasting %v; want one line with %q, lasting %v", tt.err, reason, lasting, tt.want, tt.lasting)
			}
			if !errors.Is(reason, tt.err) {
				t.Error("the cause is not wrapped")
			}
		})
	}
}

// restConfig returns a configuration for api with a changed kubeconfig. change may be nil.
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
	cfg.Timeout, cfg.QPS = time.Minute, -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	return &preflighter{client: client, server: cfg.Host, advice: commandAdvice, clock: clk}, clk
}

// testNeeds holds permissions of this process and of a service account.
var testNeeds = []need{
	{permission: permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}}, impacts: []string{"no controller starts"}},
	{permission: permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "controller-manager"}}, impacts: []string{"no replica leads"}},
	{account: "a-controller", permission: permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "update", Group: "apps", Resource: "replicasets", Subresource: "status"}}, impacts: []string{"a cannot tell"}},
	{account: "a-controller", permission: permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods"}}, impacts: []string{"a cannot write"}},
	{account: "a-controller", permission: permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods"}}, impacts: []string{"a cannot write"}},
	{account: "a-controller", permission: permission{path: "/api", ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "get"}}, impacts: []string{"a cannot see"}},
	{account: "a-controller", permission: permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "watch", Resource: "nodes"}}, impacts: []string{"a is slower"}, optional: true},
}

// runInTime fails the test, with the log, if a preflight waits for the clock.
func runInTime(t *testing.T, p *preflighter) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return p.runChecks(ctx, testNeeds)
}

func TestPreflightRights(t *testing.T) {
	api := fakeapi.New(t)
	const account = "system:serviceaccount:kube-system:a-controller "
	ours := []string{"list pods", "get leases.coordination.k8s.io controller-manager in kube-system"}
	accounts := []string{account + "update replicasets.apps/status", account + "create pods", account + "delete pods", account + "get /api", account + "watch nodes"}
	const grant = "; grant it with a ClusterRole and its binding (deploy/rbac of this version has them)"
	p, _ := newPreflighter(t, restConfig(t, api, nil))
	for _, tt := range []struct {
		name      string
		allowed   []string
		forbidden string
		want      string // empty: no missing permissions
		asked     [2]int // about ourselves, about accounts
	}{
		{"everything", []string{"* *.*", account + "* *.*"}, "", "", [2]int{1, 1}},
		{"just enough", slices.Concat(ours, accounts), "", "", [2]int{3, 6}},
		{"just enough, and everything for the account", append(slices.Clone(ours), account+"* *.*"), "", "", [2]int{3, 1}},
		{"one missing without which it works", slices.Concat(ours, accounts[:4]), "", "", [2]int{3, 6}},
		{"one missing without which it works, and another", slices.Concat(ours[1:], accounts[:4]), "",
			"user manager is not allowed to: list pods (no controller starts); user system:serviceaccount:kube-system:a-controller is not allowed to: watch nodes (a is slower)" + grant, [2]int{3, 6}},
		{"one missing", slices.Concat(ours[1:], accounts), "", "user manager is not allowed to: list pods (no controller starts)" + grant, [2]int{3, 6}},
		{"one missing for the account", slices.Concat(ours, accounts[:3], accounts[4:]), "",
			"user system:serviceaccount:kube-system:a-controller is not allowed to: get /api (a cannot see)" + grant, [2]int{3, 6}},
		{"what is ours is none of the account's", slices.Concat(ours, accounts[1:], []string{"update replicasets.apps/status"}), "",
			"user system:serviceaccount:kube-system:a-controller is not allowed to: update replicasets.apps/status (a cannot tell)" + grant, [2]int{3, 6}},
		{"all that is missing, at once and by impact", nil, "",
			"user manager is not allowed to: list pods (no controller starts), get leases.coordination.k8s.io controller-manager in kube-system (no replica leads); " +
				"user system:serviceaccount:kube-system:a-controller is not allowed to: get /api (a cannot see), update replicasets.apps/status (a cannot tell), " +
				"create pods, delete pods (a cannot write), watch nodes (a is slower)" + grant, [2]int{3, 6}},
		{"we may not ask about accounts", ours, "subjectaccessreviews", "", [2]int{3, 0}},
		{"we may not ask about accounts, and something is missing for us", ours[1:], "subjectaccessreviews",
			"user manager is not allowed to: list pods (no controller starts)" + grant, [2]int{3, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api.Set(func(f *fakeapi.Server) { f.Allowed, f.Forbidden, f.Reviews = tt.allowed, tt.forbidden, nil })
			err := runInTime(t, p)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want) {
				t.Errorf("preflight = %v, want %q", err, tt.want)
			}
			if got := [2]int{api.Count("self"), api.Count("access")}; got != tt.asked {
				t.Errorf("%v questions, want %v", got, tt.asked)
			}
		})
	}
}

// TestPreflightNamesControllersWithoutPermissions starts with the roles of a version that enabled fewer controllers.
func TestPreflightNamesControllersWithoutPermissions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		given   string // --controllers
		granted string // value of --controllers whose permissions are granted
		command bool
		want    []string
		wantEnd string
	}{
		{"roles without the garbage collector", "*", "*,-garbagecollector", true,
			[]string{"get *.*", "patch *.*", "watch *.*", "garbage-collector-controller cannot"}, "exclude the controllers that need it: --controllers=*,-garbage-collector-controller"},
		{"roles without the Deployment controller either", "*", "*,-garbagecollector,-deployment", true,
			[]string{"watch *.*", "patch replicasets.apps (deployment-controller cannot", "garbage-collector-controller cannot"},
			"exclude the controllers that need it: --controllers=*,-deployment-controller,-garbage-collector-controller"},
		{"roles without the node lifecycle controller", "*", "*,-nodelifecycle", true,
			[]string{"watch leases.coordination.k8s.io (no controller starts)"}, "exclude the controllers that need it: --controllers=*,-node-lifecycle-controller"},
		{"with controllers that were excluded before", "*,-podgc", "*,-garbagecollector", true,
			[]string{"get *.*"}, "exclude the controllers that need it: --controllers=*,-pod-garbage-collector-controller,-garbage-collector-controller"},
		{"in another program", "*", "*,-garbagecollector", false, []string{"get *.*"}, "leave out the controllers that need it: garbage-collector-controller"},
		{"no controller would remain", "garbagecollector", "replicaset", true, []string{"get *.*"}, "(deploy/rbac of this version has them)"},
		{"the manager itself lacks a permission", "*", "", true, []string{"create events"}, "(deploy/rbac of this version has them)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := fakeapi.New(t)
			if tt.granted != "" {
				var granted []string
				for _, n := range requiredBy(t, "--controllers="+tt.granted)[""] {
					granted = append(granted, n.String())
				}
				api.Set(func(f *fakeapi.Server) { f.Allowed = granted })
			}
			p, _ := newPreflighter(t, restConfig(t, api, nil))
			cfg, err := parsed(t, "--kubeconfig="+minimalKubeconfig(t), "--controllers="+tt.given).Complete()
			if err != nil {
				t.Fatal(err)
			}
			p.cfg = cfg
			if !tt.command {
				p.advice = programAdvice
			}
			err = p.runChecks(t.Context(), requiredPermissions(cfg))
			if err == nil || !strings.HasSuffix(err.Error(), tt.wantEnd) {
				t.Fatalf("preflight = %v, want it to end with %q", err, tt.wantEnd)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("preflight = %v, want %q", err, want)
				}
			}
		})
	}
}

// A lasting problem ends the preflight at the first response: the clock does not advance here.
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
		{"forbidden", 403, nil, "forbids access reviews"},
		{"another CA", 0, func(c *clientcmdapi.Config) {
			c.Clusters["c"].CertificateAuthorityData = fakeapi.NewCA(t, "other").PEM
		}, "certificate signed by unknown authority; check the certificate authority"},
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
			err := runInTime(t, p)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("preflight = %v, want one line with %q", err, tt.want)
			}
		})
	}
}

// stepping advances the clock for every waiter, until the test ends.
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

// pass advances the clock by d, in steps for a repeated waiter.
func pass(t *testing.T, clk *clocktesting.FakeClock, d time.Duration) {
	t.Helper()
	for end := clk.Now().Add(d); clk.Now().Before(end); clk.Step(preflightPause) {
		fakeapi.Eventually(t, func() error {
			if !clk.HasWaiters() {
				return errors.New("nobody waits on the clock")
			}
			return nil
		})
	}
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
			go func() { done <- p.runChecks(t.Context(), testNeeds[:2]) }()
			fakeapi.Eventually(t, func() error {
				if clk.Since(start) < 2*preflightGrace && len(done) == 0 {
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
		done := make(chan error, 1)
		go func() { done <- p.runChecks(t.Context(), testNeeds[:2]) }()
		pass(t, clk, time.Minute)
		// A started API server may lack default roles for a while.
		api.Set(func(f *fakeapi.Server) { f.Status = 403 })
		pass(t, clk, 10*time.Second)
		select {
		case err := <-done:
			t.Fatalf("gave up on a server that is starting: %v", err)
		default:
		}
		api.Set(func(f *fakeapi.Server) { f.Status = 0; f.Allowed = []string{"* *.*"} })
		stepping(t, clk)
		if err := <-done; err != nil {
			t.Errorf("preflight = %v, want nil", err)
		}
	})
	t.Run("for a server that is not ready", func(t *testing.T) {
		for _, code := range []int{http.StatusInternalServerError, http.StatusForbidden} {
			api := fakeapi.New(t)
			api.Set(func(f *fakeapi.Server) { f.Readyz.Status, f.Status = code, http.StatusForbidden })
			p, clk := newPreflighter(t, restConfig(t, api, nil))
			done := make(chan error, 1)
			go func() { done <- p.runChecks(t.Context(), testNeeds[:2]) }()
			fakeapi.Eventually(t, func() error {
				if !clk.HasWaiters() && len(done) == 0 {
					return errors.New("neither waiting nor over")
				}
				return nil
			})
			api.Set(func(f *fakeapi.Server) { f.Readyz.Status, f.Status, f.Allowed = 0, 0, []string{"* *.*"} })
			stepping(t, clk)
			if err := <-done; err != nil {
				t.Errorf("preflight with %d from /readyz = %v, want nil", code, err)
			}
		}
	})
	t.Run("and gives up when it is up and goes on to refuse", func(t *testing.T) {
		api := fakeapi.New(t)
		api.Set(func(f *fakeapi.Server) { f.Status = 503 })
		p, clk := newPreflighter(t, restConfig(t, api, nil))
		done := make(chan error, 1)
		go func() { done <- p.runChecks(t.Context(), testNeeds[:2]) }()
		fakeapi.Eventually(t, func() error {
			if !clk.HasWaiters() {
				return errors.New("not waiting yet")
			}
			return nil
		})
		api.Set(func(f *fakeapi.Server) { f.Status = 403 })
		stepping(t, clk)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "forbids access reviews") {
			t.Errorf("preflight = %v, want it to give up", err)
		}
	})
	t.Run("until it is told to stop", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		_ = listener.Close() // the server is closed
		p, clk := newPreflighter(t, &rest.Config{Host: "https://" + address})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.runChecks(ctx, testNeeds[:2]) }()
		fakeapi.Eventually(t, func() error {
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
	const (
		process = ""
		leases  = "leases.coordination.k8s.io"
	)
	// by returns the reviewed permissions by user, as text. A repeated review is an error.
	by := func(t *testing.T, args ...string) map[string][]string {
		t.Helper()
		cfg, err := parsed(t, append([]string{"--kubeconfig=" + minimalKubeconfig(t), "--leader-elect-resource-name=n"}, args...)...).Complete()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string][]string{}
		for _, n := range requiredPermissions(cfg) {
			if slices.Contains(all[n.account], n.String()) {
				t.Errorf("%q needs %s twice", n.account, n)
			}
			all[n.account] = append(all[n.account], n.String())
			if len(n.impacts) == 0 || slices.Contains(n.impacts, "") {
				t.Errorf("%s has no impact", n)
			}
		}
		for _, permissions := range all {
			slices.Sort(permissions)
		}
		return all
	}
	common := []string{"create events", "patch events"}
	elects := []string{"create " + leases + " in kube-system", "get " + leases + " n in kube-system", "update " + leases + " n in kube-system"}
	watches := func(types ...string) (all []string) {
		for _, t := range types {
			all = append(all, "list "+t, "watch "+t)
		}
		return all
	}
	tokens := func(accounts ...string) (all []string) {
		for _, a := range accounts {
			all = append(all, "create serviceaccounts/token "+a+" in kube-system")
		}
		return all
	}
	replicaSets := []string{"create pods", "delete pods", "get replicasets.apps", "list pods", "list replicasets.apps", "patch pods",
		"update replicasets.apps/finalizers", "update replicasets.apps/status"}
	nodes := []string{"get " + leases + " in kube-node-lease", "get nodes", "list " + leases + " in kube-node-lease", "list nodes",
		"patch nodes", "patch pods/status", "update nodes/status"}
	evictions := []string{"delete pods", "get nodes", "get pods", "patch pods/status"}
	podGC := []string{"delete pods", "get nodes", "list pods", "patch pods/status"}
	namespaces := []string{"delete *.*", "deletecollection *.*", "get /api", "get /apis", "get /readyz", "get namespaces", "list *.*",
		"update namespaces/finalize", "update namespaces/status"}
	endpoints := []string{"create endpointslices.discovery.k8s.io", "delete endpointslices.discovery.k8s.io", "list endpointslices.discovery.k8s.io",
		"list pods", "update endpointslices.discovery.k8s.io", "update services/finalizers"}
	deployments := []string{"create replicasets.apps", "delete replicasets.apps", "get deployments.apps", "get replicasets.apps", "list deployments.apps",
		"list replicasets.apps", "patch replicasets.apps", "update deployments.apps/finalizers", "update deployments.apps/status"}
	garbage := []string{"delete *.*", "get *.*", "list *.*", "patch *.*"}

	for _, tt := range []struct {
		name string
		args []string
		want map[string][][]string // by account, "" is this process
	}{
		{"nothing but serving and events", []string{"--controllers=-*", "--leader-elect=false"}, map[string][][]string{process: {common}}},
		{"one controller, one namespace of Leases", []string{"--controllers=replicaset"}, map[string][][]string{
			process: {common, elects, watches(leases + " in kube-system"), replicaSets, watches("pods", "replicasets.apps", "namespaces")},
		}},
		{"nodes without election", []string{"--controllers=nodelifecycle", "--leader-elect=false"}, map[string][][]string{
			process: {common, nodes, watches("nodes", "pods", leases+" in kube-node-lease")},
		}},
		{"all but the garbage collector", []string{"--controllers=*,-garbage-collector-controller"}, map[string][][]string{
			process: {common, elects, watches("nodes", "pods", leases, "replicasets.apps", "deployments.apps", "namespaces", "services", "endpointslices.discovery.k8s.io"),
				replicaSets, nodes, evictions, podGC, namespaces, endpoints, deployments},
		}},
		{"all, each with an account of its own", []string{"--use-service-account-credentials"}, map[string][][]string{
			process: {common, elects, watches("nodes", "pods", leases, "replicasets.apps", "deployments.apps", "namespaces", "services", "endpointslices.discovery.k8s.io"),
				tokens("replicaset-controller", "node-controller", "pod-garbage-collector", "namespace-controller", "endpointslice-controller", "deployment-controller", "generic-garbage-collector"),
				watches("*.*")},
			"replicaset-controller":     {replicaSets},
			"node-controller":           {nodes, evictions},
			"pod-garbage-collector":     {podGC},
			"namespace-controller":      {namespaces},
			"endpointslice-controller":  {endpoints},
			"deployment-controller":     {deployments},
			"generic-garbage-collector": {garbage},
		}},
		{"the garbage collector is asked for", []string{"--controllers=garbagecollector", "--leader-elect=false"}, map[string][][]string{
			process: {common, garbage, watches("*.*")},
		}},
		{"dry run of the garbage collector", []string{"--controllers=garbagecollector", "--garbage-collector-dry-run", "--leader-elect=false"}, map[string][][]string{
			process: {common, {"get *.*", "list *.*"}, watches("*.*")},
		}},
		{"the garbage collector has an account of its own, and this process watches", []string{"--use-service-account-credentials", "--controllers=garbagecollector", "--leader-elect=false"}, map[string][][]string{
			process:                     {common, watches("*.*"), tokens("generic-garbage-collector")},
			"generic-garbage-collector": {garbage},
		}},
		{"the garbage collector is asked for, and switched off", []string{"--controllers=garbagecollector", "--enable-garbage-collector=false", "--leader-elect=false"}, map[string][][]string{
			process: {common},
		}},
		{"two of them", []string{"--use-service-account-credentials", "--controllers=podgc,taint-eviction-controller"}, map[string][][]string{
			process:                 {common, elects, watches("nodes", "pods", leases+" in kube-system"), tokens("node-controller", "pod-garbage-collector")},
			"node-controller":       {evictions},
			"pod-garbage-collector": {podGC},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := map[string][]string{}
			for account, parts := range tt.want {
				want[account] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(parts...))))
			}
			if diff := cmp.Diff(want, by(t, tt.args...)); diff != "" {
				t.Errorf("rights that are asked for (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPermissionString(t *testing.T) {
	for want, r := range map[string]authorizationv1.ResourceAttributes{
		"get pods":              {Verb: "get", Resource: "pods"},
		"patch pods/status":     {Verb: "patch", Resource: "pods", Subresource: "status"},
		"list replicasets.apps": {Verb: "list", Group: "apps", Resource: "replicasets"},
		"update a.g/s n in ns":  {Verb: "update", Group: "g", Resource: "a", Subresource: "s", Name: "n", Namespace: "ns"},
		"list *.*":              {Verb: "list", Group: "*", Resource: "*"},
		"get x in y":            {Verb: "get", Resource: "x", Namespace: "y"},
	} {
		if got := (permission{ResourceAttributes: r}).String(); got != want {
			t.Errorf("%+v is called %q, want %q", r, got, want)
		}
	}
	path := permission{path: "/apis", ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "get"}}
	if got := path.String(); got != "get /apis" {
		t.Errorf("%+v is called %q, want get /apis", path, got)
	}
}
