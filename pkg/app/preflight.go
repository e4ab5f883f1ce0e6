package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
	"minikcm/pkg/flagcheck"
	"minikcm/pkg/kubeclient"
)

const (
	// preflightTimeout bounds one request, so that an address that drops packets is reported after 5 s.
	// preflightPatience replaces preflightTimeout if Config.StartTimeout is set: with few attempts, a busy API
	// server needs the time for a slow response.
	preflightTimeout, preflightPatience = 5 * time.Second, 20 * time.Second
	// preflightPause separates two attempts, preflightLogInterval two log lines about attempts.
	preflightPause       = 500 * time.Millisecond
	preflightLogInterval = 5 * time.Second
	// preflightGrace is the time that a starting API server may reject requests: it accepts requests before
	// its default roles exist.
	preflightGrace = 30 * time.Second
	// preflightParallel bounds concurrent access reviews.
	preflightParallel = 8
)

// preflight checks, before caches, election and controllers start, that the API server can be reached and that
// it allows every request of the enabled controllers, to this process and to the service accounts that
// controllers use. It waits for an API server that is missing or not ready, at most for Config.StartTimeout. A
// lasting problem is an error of one line with advice. It returns the error of ctx if ctx ends first.
func preflight(ctx context.Context, cfg Config) error {
	rc := kubeclient.WithAgent(cfg.REST, "preflight")
	rc.Timeout, rc.QPS = preflightTimeout, -1
	if cfg.StartTimeout > 0 {
		rc.Timeout = preflightPatience
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("build the client of the preflight: %w", err)
	}
	p := &preflighter{client: client, cfg: cfg, server: rc.Host, advice: programAdvice, clock: clock.RealClock{}}
	if cfg.OwnProcess {
		p.advice = commandAdvice
	}
	return p.runChecks(ctx, requiredPermissions(cfg))
}

type preflighter struct {
	cfg    Config
	client kubernetes.Interface
	server string
	advice *strings.Replacer
	clock  clock.WithTicker
}

// runChecks repeats checkNeeds until it passes, ctx ends, or the error is lasting. An API server that was not ready
// before may reject requests for preflightGrace.
func (p *preflighter) runChecks(ctx context.Context, needs []need) error {
	log := klog.FromContext(ctx).WithValues("server", p.server)
	begun := p.clock.Now()
	var logged, responded time.Time // the last log line; the first response of an API server that was not ready before
	for {
		err := p.checkNeeds(ctx, needs)
		if err == nil {
			log.Info("API server is available")
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := p.clock.Now()
		reason, lasting := classifyProblem(err, p.server, p.advice)
		switch {
		case p.cfg.StartTimeout > 0 && now.Sub(begun) >= p.cfg.StartTimeout:
			return reason
		case !lasting:
			responded = time.Time{}
		case logged.IsZero() && !p.isStarting(ctx): // at the first attempt
			return reason
		case responded.IsZero():
			responded = now
		case now.Sub(responded) > preflightGrace:
			return reason
		}
		if now.Sub(logged) >= preflightLogInterval {
			logged = now
			log.Info("Waiting for the API server", "reason", reason.Error())
		}
		if !timing.Sleep(ctx, p.clock, preflightPause) {
			return context.Cause(ctx)
		}
	}
}

// isStarting reports whether the API server is not ready, or does not have the role yet that lets every client
// read its readiness. An API server that rejects the credentials there has started.
func (p *preflighter) isStarting(ctx context.Context) bool {
	err := kubeclient.CheckReady(ctx, p.client.Discovery().RESTClient())
	return apierrors.IsInternalError(err) || apierrors.IsForbidden(err)
}

// checkNeeds reviews all needs once. If every missing permission is optional, checkNeeds logs the
// permissions and returns nil.
func (p *preflighter) checkNeeds(ctx context.Context, needs []need) error {
	log := klog.FromContext(ctx)
	m := &missing{}
	for len(needs) > 0 {
		account := needs[0].account
		n := slices.IndexFunc(needs, func(n need) bool { return n.account != account })
		if n < 0 {
			n = len(needs)
		}
		denied, err := p.deniedNeeds(ctx, needs[:n])
		if account != "" && apierrors.IsForbidden(err) {
			// No controller needs the permission to review the access of accounts. The role
			// system:auth-delegator, which serving needs, includes it.
			log.Info("Permissions of the controllers' accounts are not checked", "reason", flagcheck.OneLine(err).Error())
			break
		}
		if err != nil {
			return err
		}
		m.needs = append(m.needs, denied...)
		needs = needs[n:]
	}
	if len(m.needs) == 0 {
		return nil
	}
	m.process, m.excluded = p.username(ctx), excludedControllers(p.cfg, m.needs)
	if slices.ContainsFunc(m.needs, func(n need) bool { return !n.optional }) {
		return m
	}
	log.Info("Working without optional permissions", "reason", m.Error())
	return nil
}

// deniedNeeds returns the needs of one account that the API server denies. An account that may do everything
// with resources takes one review; its paths are not reviewed. After an authorizer has failed, a permission that is
// not optional is an error, because a later review may allow the permission.
func (p *preflighter) deniedNeeds(ctx context.Context, needs []need) ([]need, error) {
	everything := permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}}
	if all, err := p.reviewAccess(ctx, needs[0].account, everything); err != nil || all.Allowed {
		return nil, err
	}
	granted := make([]bool, len(needs))
	var reviews errgroup.Group
	reviews.SetLimit(preflightParallel)
	for i, n := range needs {
		reviews.Go(func() error {
			review, err := p.reviewAccess(ctx, n.account, n.permission)
			if granted[i] = review.Allowed; !review.Allowed && review.EvaluationError != "" && !n.optional {
				return fmt.Errorf("review access: %s is denied, and an authorizer has failed: %s", n, review.EvaluationError)
			}
			return err
		})
	}
	if err := reviews.Wait(); err != nil {
		return nil, err
	}
	var denied []need
	for i, n := range needs {
		if !granted[i] {
			denied = append(denied, n)
		}
	}
	return denied, nil
}

// reviewAccess reviews a permission of this process or of an account. The account need not exist, and its token
// is not needed.
func (p *preflighter) reviewAccess(ctx context.Context, account string, r permission) (authorizationv1.SubjectAccessReviewStatus, error) {
	api := p.client.AuthorizationV1()
	resource, path := &r.ResourceAttributes, (*authorizationv1.NonResourceAttributes)(nil)
	if r.path != "" {
		resource, path = nil, &authorizationv1.NonResourceAttributes{Path: r.path, Verb: r.Verb}
	}
	if account == "" {
		review, err := api.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: resource, NonResourceAttributes: path},
		}, metav1.CreateOptions{})
		return review.Status, err
	}
	review, err := api.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               accountPrefix + account,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + metav1.NamespaceSystem, "system:authenticated"},
		ResourceAttributes: resource, NonResourceAttributes: path,
	}}, metav1.CreateOptions{})
	return review.Status, err
}

const accountPrefix = "system:serviceaccount:" + metav1.NamespaceSystem + ":"

// username returns the name of this process for a message.
func (p *preflighter) username(ctx context.Context) string {
	review, err := p.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "this user"
	}
	return "user " + review.Status.UserInfo.Username
}

// missing is the error of permissions that the API server denies.
type missing struct {
	process  string   // name of this process
	needs    []need   // ordered by account
	excluded []string // see [excludedControllers]
}

// excludedControllers returns the known controllers that would be disabled if the manager ran without those that
// the needs belong to. It returns nil if that is no way out.
func excludedControllers(cfg Config, needs []need) []string {
	excluded := slices.DeleteFunc(controllerNames(cfg.Known), func(name string) bool {
		lacks := func(n need) bool { return !n.optional && slices.Contains(n.controllers, name) }
		return slices.Contains(controllerNames(cfg.Controllers), name) && !slices.ContainsFunc(needs, lacks)
	})
	ofManager := slices.ContainsFunc(needs, func(n need) bool { return !n.optional && len(n.controllers) == 0 })
	if ofManager || len(excluded) == len(cfg.Known) {
		return nil
	}
	return excluded
}

// advice returns a text with the placeholders of commandAdvice.
func (m *missing) advice() string {
	text := "grant it with a role and its binding, as in deploy/ of this version"
	if len(m.excluded) > 0 {
		text += ", or WITHOUT" + strings.Join(m.excluded, "SEPARATOR")
	}
	return text
}

// Error names each impact once, after all permissions with this impact.
func (m *missing) Error() string {
	slices.SortFunc(m.needs, func(a, b need) int {
		return cmp.Or(strings.Compare(a.account, b.account), slices.Compare(a.impacts, b.impacts), strings.Compare(a.String(), b.String()))
	})
	text := ""
	for i, n := range m.needs {
		if sameUser := i > 0 && m.needs[i-1].account == n.account; sameUser {
			text += ", " + n.String()
		} else {
			user := m.process
			if n.account != "" {
				user = "; user " + accountPrefix + n.account
			}
			text += user + " is not allowed to: " + n.String()
		}
		if i == len(m.needs)-1 || m.needs[i+1].account != n.account || !slices.Equal(m.needs[i+1].impacts, n.impacts) {
			text += " (" + strings.Join(n.impacts, ", ") + ")"
		}
	}
	return strings.TrimPrefix(text, "; ")
}

// commandAdvice and programAdvice fill the placeholders of problems with flags, or with fields of Config.
var (
	commandAdvice = strings.NewReplacer("CREDENTIALS", "--kubeconfig", "ADDRESS", "the address in --kubeconfig and --master",
		"WITHOUT", "exclude the controllers that need it: --controllers=*,-", "SEPARATOR", ",-")
	programAdvice = strings.NewReplacer("CREDENTIALS", "the rest.Config", "ADDRESS", "Host of the rest.Config",
		"WITHOUT", "leave out the controllers that need it: ", "SEPARATOR", ", ")
)

// problems are the errors of a first request with their text before and after the error. The first match
// decides. A lasting problem does not end by itself. A missing, overloaded or starting server is not lasting,
// nor is a load balancer without API servers, which may return any page.
var problems = []struct {
	matches      func(error) bool
	text, advice string
	temporary    bool
}{
	{matches: isType[x509.UnknownAuthorityError], advice: "check the certificate authority in CREDENTIALS, the server's certificate is signed by another"},
	{matches: isType[x509.HostnameError], advice: "check ADDRESS, the server's certificate is for other names"},
	{matches: isType[x509.CertificateInvalidError], advice: "the server's certificate is not valid now, check it and the clock of this machine"},
	{matches: isPlainHTTP, advice: "the address speaks no TLS, check ADDRESS"},
	{matches: isRejectedHandshake, advice: "the server rejected the TLS handshake, check the client certificate in CREDENTIALS"},
	{matches: apierrors.IsUnauthorized, text: " does not accept our credentials", advice: "check the user in CREDENTIALS, or the token of the service account"},
	{matches: apierrors.IsForbidden, text: " forbids access reviews", advice: "bind our user to a role, see deploy/"},
	{matches: isUnexpectedStatus, text: " does not respond like a Kubernetes API server", advice: "if this lasts, check ADDRESS", temporary: true},
}

// classifyProblem returns an error of one line with advice about the error of a first request, and whether the
// problem is lasting.
func classifyProblem(err error, server string, advice *strings.Replacer) (reason error, lasting bool) {
	if m := (*missing)(nil); errors.As(err, &m) {
		return fmt.Errorf("%w; %s", m, advice.Replace(m.advice())), true
	}
	for _, p := range problems {
		if p.matches(err) {
			return fmt.Errorf("API server %s%s: %w; %s", server, p.text, flagcheck.OneLine(err), advice.Replace(p.advice)), !p.temporary
		}
	}
	return fmt.Errorf("API server %s: %w", server, flagcheck.OneLine(err)), false
}

func isType[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

func isPlainHTTP(err error) bool {
	return isType[tls.RecordHeaderError](err) || errors.Is(err, http.ErrSchemeMismatch)
}

func isRejectedHandshake(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// isUnexpectedStatus reports whether no API server of a supported version returns the status of err for an
// access review.
func isUnexpectedStatus(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}
