package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/kubeclient"
)

func TestClassify(t *testing.T) {
	gr := schema.GroupResource{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}
	through := func(err error) error { return &url.Error{Op: "Post", URL: "https://h/apis", Err: err} }
	for _, tt := range []struct {
		name    string
		err     error
		lasting bool
		want    string
	}{
		{"refused", through(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), false, "connection refused"},
		{"server busy", apierrors.NewTooManyRequests("wait", 1), false, "wait"},
		{"server starting", apierrors.NewServiceUnavailable("starting"), false, "starting"},
		{"wrong CA", through(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), true, "check the certificate authority in --kubeconfig"},
		{"wrong name", through(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}}), true, "check the address"},
		{"expired", through(&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{}}}), true, "the clock of this machine"},
		{"no TLS there", through(http.ErrSchemeMismatch), true, "speaks no TLS"},
		{"handshake refused", through(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), true, "check the client certificate"},
		{"who are you", apierrors.NewUnauthorized("Unauthorized"), true, "does not accept our credentials"},
		{"forbidden", apierrors.NewForbidden(gr, "", errors.New("no")), true, "forbids access reviews"},
		{"load balancer without backends", &apierrors.StatusError{ErrStatus: metav1.Status{Code: 404, Message: "m"}}, false, "does not respond like a Kubernetes API server"},
		{"rights missing", &missing{process: "user u", needs: []need{{permission: permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods"}}, impacts: []string{"no pods"}}}}, true, "user u is not allowed to: create pods (no pods); grant"},
		{"several lines become one", errors.New("a\n\tb"), false, "a b"},
	} {
		reason, lasting := classifyProblem(tt.err, "https://h", commandAdvice)
		if lasting != tt.lasting || !strings.Contains(reason.Error(), tt.want) || strings.Contains(reason.Error(), "\n") {
			t.Errorf("%s: classifyProblem(%v) = %q, lasting %v; want one line with %q, lasting %v", tt.name, tt.err, reason, lasting, tt.want, tt.lasting)
		}
		fakeapi.WantError(t, tt.name+": reason", reason, tt.err)
	}
}

func newPreflighter(t *testing.T, cfg *rest.Config) *preflighter {
	t.Helper()
	client := fakeapi.Must(kubernetes.NewForConfig(cfg))
	return &preflighter{client: client, server: cfg.Host, advice: commandAdvice, clock: clock.RealClock{}}
}

// preflighterOf returns the preflight of a manager on a server with permissions.
func preflighterOf(t *testing.T, api *fakeapi.Server) *preflighter {
	t.Helper()
	cfg := fakeapi.Must(kubeclient.Load("kubeconfig", api.Kubeconfig(t, nil), ""))
	cfg.QPS = -1
	return newPreflighter(t, cfg)
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

func TestPreflightRights(t *testing.T) {
	api := fakeapi.New(t)
	const account = "system:serviceaccount:kube-system:a-controller "
	ours := []string{"list pods", "get leases.coordination.k8s.io controller-manager in kube-system"}
	accounts := []string{account + "update replicasets.apps/status", account + "create pods", account + "delete pods", account + "get /api", account + "watch nodes"}
	const allowed = "<nil>"
	const grant = "; grant it with a role and its binding, as in deploy/ of this version"
	p := preflighterOf(t, api)
	for _, tt := range []struct {
		name      string
		allowed   []string
		forbidden string
		want      string
		asked     [2]int // about ourselves, about accounts
	}{
		{"everything", []string{"* *.*", account + "* *.*"}, "", allowed, [2]int{1, 1}},
		{"just enough", slices.Concat(ours, accounts), "", allowed, [2]int{3, 6}},
		{"one missing without which it works", slices.Concat(ours, accounts[:4]), "", allowed, [2]int{3, 6}},
		{"one missing without which it works, and another", slices.Concat(ours[1:], accounts[:4]), "",
			"user manager is not allowed to: list pods (no controller starts); user system:serviceaccount:kube-system:a-controller is not allowed to: watch nodes (a is slower)" + grant, [2]int{3, 6}},
		{"one missing for the account", slices.Concat(ours, accounts[:3], accounts[4:]), "",
			"user system:serviceaccount:kube-system:a-controller is not allowed to: get /api (a cannot see)" + grant, [2]int{3, 6}},
		{"what is ours is none of the account's", slices.Concat(ours, accounts[1:], []string{"update replicasets.apps/status"}), "",
			"user system:serviceaccount:kube-system:a-controller is not allowed to: update replicasets.apps/status (a cannot tell)" + grant, [2]int{3, 6}},
		{"all that is missing, at once and by impact", nil, "",
			"user manager is not allowed to: list pods (no controller starts), get leases.coordination.k8s.io controller-manager in kube-system (no replica leads); " +
				"user system:serviceaccount:kube-system:a-controller is not allowed to: get /api (a cannot see), update replicasets.apps/status (a cannot tell), " +
				"create pods, delete pods (a cannot write), watch nodes (a is slower)" + grant, [2]int{3, 6}},
		{"we may not ask about accounts", ours, "subjectaccessreviews", allowed, [2]int{3, 0}},
	} {
		api.Set(func(f *fakeapi.Server) {
			f.Allowed, f.Forbidden, f.Reviews, f.Failed = tt.allowed, tt.forbidden, nil, tt.want == allowed
		})
		err := p.runChecks(t.Context(), testNeeds)
		fakeapi.Want(t, tt.name+": preflight", fmt.Sprint(err), tt.want)
		fakeapi.Want(t, tt.name+": questions", [2]int{api.Count("self"), api.Count("access")}, tt.asked)
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
		{"with controllers that were excluded before", "*,-podgc", "*,-garbagecollector", true,
			[]string{"get *.*"}, "exclude the controllers that need it: --controllers=*,-pod-garbage-collector-controller,-garbage-collector-controller"},
		{"in another program", "*", "*,-garbagecollector", false, []string{"get *.*"}, "leave out the controllers that need it: garbage-collector-controller"},
		{"no controller would remain", "garbagecollector", "replicaset", true, []string{"get *.*"}, "as in deploy/ of this version"},
		{"the manager itself lacks a permission", "*", "", true, []string{"create events"}, "as in deploy/ of this version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := fakeapi.New(t)
			if tt.granted != "" {
				for _, n := range requiredBy(t, "--controllers="+tt.granted)[""] {
					api.Allowed = append(api.Allowed, n.String())
				}
			}
			p := preflighterOf(t, api)
			p.cfg = fakeapi.Must(parsed(t, "--kubeconfig="+minimalKubeconfig(t), "--controllers="+tt.given).Complete())
			if !tt.command {
				p.advice = programAdvice
			}
			err := p.runChecks(t.Context(), requiredPermissions(p.cfg))
			if err == nil || !strings.HasSuffix(err.Error(), tt.wantEnd) {
				t.Fatalf("preflight = %v, want it to end with %q", err, tt.wantEnd)
			}
			for _, want := range tt.want {
				fakeapi.WantPart(t, "error of the preflight", err.Error(), want)
			}
		})
	}
}

func TestPreflightWaits(t *testing.T) {
	const always = 24 * time.Hour
	for _, tt := range []struct {
		name          string
		reviews       func(sinceStart time.Duration) (status int)
		ready         int           // status of /readyz in the first minute
		stop          time.Duration // end of the context
		after, within time.Duration // end of the preflight
		want          string        // in the error
	}{
		{"load balancer without an API server, 404", during(http.StatusNotFound, time.Minute), 200, always, time.Minute, 61 * time.Second, "<nil>"},
		{"API server starts, roles come later", func(since time.Duration) int {
			return max(during(http.StatusServiceUnavailable, time.Minute)(since), during(http.StatusForbidden, 70*time.Second)(since))
		}, 200, always, 70 * time.Second, 71 * time.Second, "<nil>"},
		{"API server is not ready", during(http.StatusForbidden, 20*time.Second), http.StatusInternalServerError, always, 20 * time.Second, 21 * time.Second, "<nil>"},
		{"API server forbids reading /readyz", during(http.StatusForbidden, 20*time.Second), http.StatusForbidden, always, 20 * time.Second, 21 * time.Second, "<nil>"},
		{"API server is up and forbids access", func(since time.Duration) int {
			return max(during(http.StatusServiceUnavailable, time.Second)(since), http.StatusForbidden)
		}, 200, always, preflightGrace, preflightGrace + 3*time.Second, "forbids access reviews"},
		{"an authorizer of the API server is away", during(http.StatusOK, time.Minute), 200, always, time.Minute, 61 * time.Second, "<nil>"},
		{"until the process is stopped", during(http.StatusServiceUnavailable, always), 200, time.Minute, time.Minute, time.Minute, context.DeadlineExceeded.Error()},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			begun := time.Now()
			server := fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
				status := tt.reviews(time.Since(begun))
				if req.URL.Path == "/readyz" {
					status = max(200, during(tt.ready, time.Minute)(time.Since(begun)))
				}
				body := fmt.Sprintf(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%v,"evaluationError":"no"}}`, status == 0)
				return &http.Response{StatusCode: max(200, status), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
			})
			p := newPreflighter(t, &rest.Config{Host: "https://h", QPS: -1, Timeout: time.Minute, Transport: server})
			ctx, cancel := context.WithTimeout(t.Context(), tt.stop)
			defer cancel()
			err := p.runChecks(ctx, testNeeds[:2])
			fakeapi.WantPart(t, "error of the preflight", fmt.Sprint(err), tt.want)
			if took := time.Since(begun); took < tt.after || took > tt.within {
				t.Errorf("preflight took %v, want %v to %v", took, tt.after, tt.within)
			}
		})
	}
}

// during returns the status until the given time, and 0 later.
func during(status int, until time.Duration) func(time.Duration) int {
	return func(since time.Duration) int {
		if since < until {
			return status
		}
		return 0
	}
}

// TestDeployGrantsExactlyWhatIsRequired has the permissions of each controller.
func TestRequired(t *testing.T) {
	for arg, want := range map[string][]string{
		"--garbage-collector-dry-run":      {"create events", "get *.*", "list *.*", "patch events", "watch *.*"},
		"--enable-garbage-collector=false": {"create events", "patch events"},
	} {
		var got []string
		for _, n := range requiredBy(t, "--controllers=garbagecollector", "--leader-elect=false", arg)[""] {
			got = append(got, n.String())
			if len(n.impacts) == 0 || slices.Contains(n.impacts, "") {
				t.Errorf("%s has no impact", n)
			}
		}
		slices.Sort(got)
		fakeapi.WantEqual(t, arg+": permissions", got, want)
	}
}
