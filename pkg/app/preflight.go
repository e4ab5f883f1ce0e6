package app

import (
	"context"
	"fmt"
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
	// preflightTimeout bounds one request, so that an address that drops packets is reported as soon as one that refuses connections. preflightPatience
	// takes its place if Config.StartTimeout is set: with few attempts, a busy API server needs the time for a slow answer.
	preflightTimeout, preflightPatience = 5 * time.Second, 20 * time.Second
	// preflightPause is the pause between two attempts, preflightSay between two log lines about them.
	preflightPause = 500 * time.Millisecond
	preflightSay   = 5 * time.Second
	// preflightGrace is how long an API server that is starting may reject requests. An API server accepts
	// requests before its default roles exist.
	preflightGrace = 30 * time.Second
	// preflightParallel bounds the questions asked at once.
	preflightParallel = 8
)

// preflight asks the API server, before caches, election and controllers start, whether it can be reached and whether all that the enabled
// controllers will do is allowed: to this process, and to the service accounts that they use instead of its identity. An API server that is
// not there yet is waited for, at most for Config.StartTimeout. What will not get better by waiting is an error of one line that says what to do about it. It returns ctx's
// error if ctx ends first.
func preflight(ctx context.Context, cfg Config) error {
	rc := kubeclient.WithAgent(cfg.REST, "preflight")
	rc.Timeout, rc.QPS = preflightTimeout, -1
	if cfg.StartTimeout > 0 {
		rc.Timeout = preflightPatience
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("build the first client: %w", err)
	}
	p := &preflighter{client: client, server: rc.Host, from: fromProgram, clock: clock.RealClock{}, patience: cfg.StartTimeout}
	if cfg.OwnProcess {
		p.from = fromFlags
	}
	return p.run(ctx, required(cfg))
}

// preflighter is one preflight.
type preflighter struct {
	client kubernetes.Interface
	server string
	from   origin
	clock  clock.WithTicker
	// patience is how long a check that fails is repeated. Without a limit it is zero.
	patience time.Duration
}

// run repeats check until it passes, ctx ends, or the reason it fails for will last.
func (p *preflighter) run(ctx context.Context, all []asker) error {
	log := klog.FromContext(ctx).WithValues("server", p.server)
	begun := p.clock.Now()
	var said, up time.Time // when we last told that we wait; when the API server first answered after we had waited
	waited := false
	for {
		err := p.check(ctx, all)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := p.clock.Now()
		reason, lasting := classify(err, p.server, p.from)
		switch {
		case p.patience > 0 && now.Sub(begun) >= p.patience:
			return reason
		case !lasting:
			waited, up = true, time.Time{}
		case !waited && !p.isStarting(ctx):
			return reason
		case up.IsZero():
			waited, up = true, now
		case now.Sub(up) > preflightGrace:
			return reason
		}
		if now.Sub(said) >= preflightSay {
			said = now
			log.Info("Waiting for the API server", "reason", reason.Error())
		}
		if !timing.Sleep(ctx, p.clock, preflightPause) {
			return context.Cause(ctx)
		}
	}
}

// isStarting reports whether the API server is not ready, or does not know the role yet that lets every client read that.
func (p *preflighter) isStarting(ctx context.Context) bool {
	err := kubeclient.CheckReady(ctx, p.client.Discovery().RESTClient())
	return apierrors.IsInternalError(err) || apierrors.IsForbidden(err)
}

// check asks once about all.
func (p *preflighter) check(ctx context.Context, all []asker) error {
	var missing []refusal
	for _, id := range all {
		lacks, err := p.lacks(ctx, id)
		switch {
		case id.account != "" && apierrors.IsForbidden(err):
			// Nothing the controllers do needs the right to ask about others. The role system:auth-delegator, which clients of the serving
			// port need us to have, has it.
			klog.FromContext(ctx).Info("Rights of the controllers' accounts are not checked", "reason", flagcheck.OneLine(err).Error())
			return missingRights(ctx, missing)
		case err != nil:
			return err
		case len(lacks) == 0:
		case id.account == "":
			missing = append(missing, refusal{p.whoami(ctx), lacks})
		default:
			missing = append(missing, refusal{"user " + username(id.account), lacks})
		}
	}
	return missingRights(ctx, missing)
}

// missingRights returns an error that names all that is missing if some of it is required. If all of it is optional it is logged, and there is no error.
func missingRights(ctx context.Context, missing []refusal) error {
	for _, r := range missing {
		if slices.ContainsFunc(r.lacks, func(n need) bool { return !n.optional }) {
			return &missingError{refusals: missing}
		}
	}
	for _, r := range missing {
		klog.FromContext(ctx).Info("Working without some rights", "reason", r.String())
	}
	return nil
}

// lacks returns what somebody needs and is not allowed. About one who may do everything it asks one question only.
func (p *preflighter) lacks(ctx context.Context, id asker) ([]need, error) {
	everything := right{verb: "*", group: "*", resource: "*"}
	if all, err := p.allowed(ctx, id.account, everything); err != nil || all {
		return nil, err
	}
	granted := make([]bool, len(id.needs))
	var asked errgroup.Group
	asked.SetLimit(preflightParallel)
	for i, n := range id.needs {
		asked.Go(func() (err error) {
			granted[i], err = p.allowed(ctx, id.account, n.right)
			return err
		})
	}
	if err := asked.Wait(); err != nil {
		return nil, err
	}
	var missing []need
	for i, n := range id.needs {
		if !granted[i] {
			missing = append(missing, n)
		}
	}
	return missing, nil
}

// allowed asks about this process or, without its token, about an account: it need not exist yet, and a standby makes nothing.
func (p *preflighter) allowed(ctx context.Context, account string, r right) (bool, error) {
	api := p.client.AuthorizationV1()
	resource, path := r.attributes()
	if account == "" {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: resource, NonResourceAttributes: path,
		}}
		answer, err := api.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               username(account),
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + metav1.NamespaceSystem, "system:authenticated"},
		ResourceAttributes: resource, NonResourceAttributes: path,
	}}
	answer, err := api.SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}

// username is what the API server calls a service account of kube-system.
func username(account string) string {
	return "system:serviceaccount:" + metav1.NamespaceSystem + ":" + account
}

// whoami is for a message, so it makes do without an answer.
func (p *preflighter) whoami(ctx context.Context) string {
	answer, err := p.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "this user"
	}
	return "user " + answer.Status.UserInfo.Username
}

// missingError says what the API server does not allow, and what does not work for that.
type missingError struct {
	refusals []refusal
}

// refusal is what one user is not allowed.
type refusal struct {
	user  string
	lacks []need
}

func (e *missingError) Error() string {
	users := make([]string, len(e.refusals))
	for i, r := range e.refusals {
		users[i] = r.String()
	}
	return strings.Join(users, "; ")
}

// String names what works no more once, behind all the rights that are missing for it.
func (r refusal) String() string {
	byReason := map[string][]string{}
	for _, n := range r.lacks {
		reason := strings.Join(n.without, ", ")
		byReason[reason] = append(byReason[reason], n.String())
	}
	var parts []string
	for reason, lacks := range byReason {
		slices.Sort(lacks)
		parts = append(parts, strings.Join(lacks, ", ")+" ("+reason+")")
	}
	slices.Sort(parts)
	return r.user + " is not allowed to: " + strings.Join(parts, ", ")
}
