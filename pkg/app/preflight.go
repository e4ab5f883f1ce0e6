package app

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/kubeclient"
)

const (
	// preflightTimeout bounds one question, so that an address that swallows packets is told as soon as a refused one.
	preflightTimeout = 5 * time.Second
	// preflightPause is the pause between two attempts, preflightSay between two log lines about them.
	preflightPause = 500 * time.Millisecond
	preflightSay   = 5 * time.Second
	// preflightSettle is how long an API server that came up while we waited may still refuse us: it answers before it has
	// made its default roles.
	preflightSettle = 30 * time.Second
	// preflightParallel bounds the questions asked at once.
	preflightParallel = 8
)

// preflight asks the API server, before caches, election and controllers start, whether it can be reached and whether we may do all that the enabled
// controllers will do. An API server that is not there yet is waited for. What will not get better by waiting is an error of
// one line that says what to do about it. It returns ctx's error if ctx ends first.
func preflight(ctx context.Context, cfg Config) error {
	rc := kubeclient.WithAgent(cfg.REST, "preflight")
	rc.Timeout, rc.QPS = preflightTimeout, -1
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("build the first client: %w", err)
	}
	p := &preflighter{client: client, server: rc.Host, clock: clock.RealClock{}}
	return p.run(ctx, required(cfg))
}

// preflighter is one preflight.
type preflighter struct {
	client kubernetes.Interface
	server string
	clock  clock.Clock
}

// run repeats check until it passes, ctx ends, or the reason it fails for will last.
func (p *preflighter) run(ctx context.Context, needs []access) error {
	log := klog.FromContext(ctx).WithValues("server", p.server)
	var said, up time.Time // when we last told that we wait; when the API server first answered after we had waited
	waited := false
	for {
		err := p.check(ctx, needs)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := p.clock.Now()
		reason, lasting := classify(err, p.server)
		switch {
		case !lasting:
			waited, up = true, time.Time{}
		case !waited:
			return reason
		case up.IsZero():
			up = now
		case now.Sub(up) > preflightSettle:
			return reason
		}
		if now.Sub(said) >= preflightSay {
			said = now
			log.Info("Waiting for the API server", "reason", reason.Error())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.clock.After(preflightPause):
		}
	}
}

// check asks once. Who may do everything is asked one question only.
func (p *preflighter) check(ctx context.Context, needs []access) error {
	everything := access{group: "*", resource: "*", verbs: []string{"*"}}
	if all, err := p.allowed(ctx, everything, "*"); err != nil || all {
		return err
	}
	var (
		lock    sync.Mutex
		missing []string
		failed  error
		wg      sync.WaitGroup
		slots   = make(chan struct{}, preflightParallel)
	)
	for _, need := range needs {
		for _, verb := range need.verbs {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				ok, err := p.allowed(ctx, need, verb)
				lock.Lock()
				defer lock.Unlock()
				if err != nil {
					failed = err
				} else if !ok {
					missing = append(missing, verb+" "+need.String())
				}
			})
		}
	}
	wg.Wait()
	if failed != nil || len(missing) == 0 {
		return failed
	}
	sort.Strings(missing)
	return &missingError{user: p.whoami(ctx), missing: missing}
}

func (p *preflighter) allowed(ctx context.Context, need access, verb string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: need.spec(verb)}
	answer, err := p.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}

// whoami is for a message, so it makes do without an answer.
func (p *preflighter) whoami(ctx context.Context) string {
	answer, err := p.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "this user"
	}
	return "user " + answer.Status.UserInfo.Username
}

// missingError says what the API server does not let us do.
type missingError struct {
	user    string
	missing []string
}

func (e *missingError) Error() string {
	return fmt.Sprintf("%s is not allowed to: %s; grant it with a ClusterRole and its binding (deploy/ has them), "+
		"or switch off the controllers that need it with --controllers", e.user, strings.Join(e.missing, ", "))
}
