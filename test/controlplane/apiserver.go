package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const killed = syscall.SIGKILL

const defaultAuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: Metadata
`

// LeaseAuditPolicy is an audit policy without reads. It records the content of Leases, which [JudgeLease] needs.
const LeaseAuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Request, resources: [{group: coordination.k8s.io, resources: [leases]}]}
- {level: Metadata}
`

type server struct {
	name    string
	api     *envtest.APIServer
	pidFile string
	logPath string
	audit   *auditFile // nil without an audit log
	running bool
}

func (c *Cluster) newServer(name string, o Options, etcd *url.URL, like *server) (*server, error) {
	program, err := Binary("kube-apiserver")
	if err != nil {
		return nil, err
	}
	starter, pidFile, err := writeStarter(c.dir, name, program)
	if err != nil {
		return nil, err
	}
	certs := filepath.Join(c.dir, "certs")
	if err := os.MkdirAll(certs, 0o700); err != nil {
		return nil, err
	}
	s := &server{name: name, pidFile: pidFile, logPath: filepath.Join(c.dir, name+".log")}
	s.api = &envtest.APIServer{
		Path: starter, CertDir: certs, EtcdURL: etcd,
		StartTimeout: startTimeout, StopTimeout: startTimeout,
	}
	// A stopped server must keep this port for the restart.
	port, err := FindPort()
	if err != nil {
		return nil, err
	}
	s.api.SecureServing.Address, s.api.SecureServing.Port = "127.0.0.1", strconv.Itoa(port)
	if like != nil {
		// envtest does not know the authority of certificates that exist in CertDir.
		s.api.SecureServing.CA = like.api.SecureServing.CA
		s.api.SecureServing.Authn = like.api.SecureServing.Authn
	}
	args, err := s.buildArguments(c.dir, o)
	if err != nil {
		return nil, err
	}
	for name, values := range args {
		s.api.Configure().Set(name, values...)
	}
	return s, nil
}

func (s *server) buildArguments(dir string, o Options) (map[string][]string, error) {
	args := map[string][]string{
		"authorization-mode": {"Node,RBAC"},
		// One issuer, so that every API server of the cluster accepts a token.
		"service-account-issuer": {"https://kubernetes.default.svc"},
		// Works on a machine without a network, too; the kubernetes Service then gets no endpoints.
		"advertise-address":        {"127.0.0.1"},
		"endpoint-reconciler-type": {"none"},
	}
	if o.Audit || o.AuditPolicy != "" {
		policy := o.AuditPolicy
		if policy == "" {
			policy = defaultAuditPolicy
		}
		policyPath := filepath.Join(dir, "audit-policy.yaml")
		if err := os.WriteFile(policyPath, []byte(policy), 0o600); err != nil {
			return nil, err
		}
		s.audit = &auditFile{path: filepath.Join(dir, s.name+".audit")}
		args["audit-policy-file"] = []string{policyPath}
		args["audit-log-path"] = []string{s.audit.path}
		args["audit-log-maxsize"] = []string{"100000"} // MB: never rotate
	}
	maps.Copy(args, o.APIServerArgs)
	return args, nil
}

func (s *server) startServer() error {
	if s.running {
		return fmt.Errorf("start %s: it is running", s.name)
	}
	logFile, err := os.OpenFile(s.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	s.api.Out, s.api.Err = logFile, logFile
	for range startAttempts {
		if err = s.api.Start(); err == nil {
			s.running = true
			return nil
		}
	}
	return fmt.Errorf("start %s: %w\n%s", s.name, err, s.logTail())
}

func (s *server) stopServer() error {
	if !s.running {
		return nil
	}
	s.running = false
	if err := s.api.Stop(); err != nil {
		return fmt.Errorf("stop %s: %w", s.name, err)
	}
	return os.Remove(s.pidFile)
}

func (s *server) killServer() error {
	if !s.running {
		return nil
	}
	s.running = false
	_ = signalProcess(s.pidFile, killed)
	if err := ignoreGone(s.api.Stop()); err != nil {
		return fmt.Errorf("kill %s: %w", s.name, err)
	}
	return os.Remove(s.pidFile)
}

func (s *server) logTail() string { return logEnd(s.logPath) }

// ignoreGone: envtest signals a process that may have ended a moment before.
func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// logEnd returns the end of a server's log, for an error message.
func logEnd(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}

// KillAPIServer ends the API server without warning, as kill -9 does. etcd goes on.
func (c *Cluster) KillAPIServer() error { return c.primary.killServer() }

// StartAPIServer starts a stopped API server on the old port and waits until the server is usable.
func (c *Cluster) StartAPIServer() error {
	if err := c.primary.startServer(); err != nil {
		return err
	}
	return waitUsable(c.admin)
}

// RestartAPIServer ends the API server as an orderly shutdown does, and starts the server. etcd goes on.
func (c *Cluster) RestartAPIServer() error {
	return errors.Join(c.primary.stopServer(), c.StartAPIServer())
}

// APIServerPID returns the process id of the API server.
func (c *Cluster) APIServerPID() (int, error) { return readPID(c.primary.pidFile) }

// PauseAPIServer stops the process of the API server with SIGSTOP: connections stay open and get no responses.
func (c *Cluster) PauseAPIServer() error { return signalProcess(c.primary.pidFile, syscall.SIGSTOP) }

// ResumeAPIServer lets a paused API server go on.
func (c *Cluster) ResumeAPIServer() error { return signalProcess(c.primary.pidFile, syscall.SIGCONT) }

// FreezeSecond cuts the second API server off from etcd. The server still serves reads at resourceVersion 0 from the
// cache and keeps watches open without events. Writes and consistent reads hang. After 40 s the server closes the
// connections to etcd. With types, plurals such as "namespaces", FreezeSecond freezes only these.
func (c *Cluster) FreezeSecond(types ...string) { c.relay.freezeTypes(types...) }

// ThawSecond ends FreezeSecond. The second API server catches up.
func (c *Cluster) ThawSecond() { c.relay.thawAll() }

// waitUsable waits for namespaces and RBAC bootstrap roles. The authorizer watches roles, so a review is needed:
// stored roles may not be in effect.
func waitUsable(cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return pollUntil(ctx, func(ctx context.Context) error {
		if err := client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return fmt.Errorf("API server is not ready: %w", err)
		}
		for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, "kube-node-lease"} {
			if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
				return fmt.Errorf("get namespace %s: %w", name, err)
			}
		}
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:kube-controller-manager",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods"},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask the authorizer: %w", err)
		}
		if !review.Status.Allowed {
			return fmt.Errorf("RBAC bootstrap roles are not in effect: %s", review.Status.Reason)
		}
		return nil
	})
}
