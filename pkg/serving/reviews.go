package serving

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

const (
	// reviewTimeout bounds one review with the retries of client-go.
	reviewTimeout = 10 * time.Second // k8s.io/apiserver v0.37: one try of one
	// reviewRate and reviewBurst bound how many questions of each kind are asked, per second and at once: anybody who can reach the port
	// can make us ask, with a token or a path that was not seen before. As k8s.io/apiserver v0.37.
	reviewRate  = 200
	reviewBurst = 400
	// tokenCacheSize bounds the remembered answers about tokens.
	tokenCacheSize = 1024
	// decisionCacheSize bounds the remembered answers about access, as upstream.
	decisionCacheSize = 8192
)

// errTooManyReviews means that the API server was not asked, because it was asked too often in the last moments.
var errTooManyReviews = errors.New("too many questions about clients, the API server is spared")

// reviewer asks the API server questions of one kind.
type reviewer struct {
	limit flowcontrol.PassiveRateLimiter
}

func newReviewer(clk clock.PassiveClock) reviewer {
	return reviewer{flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reviewRate, reviewBurst, clk)}
}

// ask calls f with a timeout. It returns errTooManyReviews, without calling f, if the limit is reached.
func (r reviewer) ask(ctx context.Context, f func(context.Context) error) error {
	if !r.limit.TryAccept() {
		return errTooManyReviews
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	return f(ctx)
}

// tokenReviewer asks the API server whose token it is, and remembers its answers for a while. Upstream's cache would do, but
// brings the audit metrics of an API server with it.
type tokenReviewer struct {
	reviewer
	reviews authenticationclient.TokenReviewInterface
	ttl     time.Duration
	cache   *utilcache.LRUExpireCache // hash of the token → TokenReviewStatus
	flights singleflight.Group        // one question at a time about one token
}

func newTokenReviewer(client kubernetes.Interface, ttl time.Duration, r reviewer) *tokenReviewer {
	return &tokenReviewer{
		reviewer: r, reviews: client.AuthenticationV1().TokenReviews(), ttl: ttl,
		cache: utilcache.NewLRUExpireCache(tokenCacheSize),
	}
}

// AuthenticateToken implements authenticator.Token.
func (t *tokenReviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	key := sha256.Sum256([]byte(token)) // tokens themselves do not stay in memory
	status, ok := t.cache.Get(key)
	if !ok {
		// The answer is for all who wait, so it does not end with the request that asked first.
		var err error
		status, err, _ = t.flights.Do(string(key[:]), func() (any, error) { return t.review(context.WithoutCancel(ctx), token) })
		if err != nil {
			return nil, false, fmt.Errorf("ask the API server about a token: %w", err)
		}
		t.cache.Add(key, status, t.ttl)
	}
	return identity(status.(authenticationv1.TokenReviewStatus))
}

func (t *tokenReviewer) review(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	var answer *authenticationv1.TokenReview
	err := t.ask(ctx, func(ctx context.Context) (err error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		answer, err = t.reviews.Create(ctx, review, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, err
	}
	return answer.Status, nil
}

// identity is whom a review found; a token that the API server does not know belongs to nobody.
func identity(status authenticationv1.TokenReviewStatus) (*authenticator.Response, bool, error) {
	if !status.Authenticated {
		if status.Error != "" {
			return nil, false, errors.New(status.Error)
		}
		return nil, false, nil
	}
	extra := make(map[string][]string, len(status.User.Extra))
	for k, v := range status.User.Extra {
		extra[k] = v
	}
	u := status.User
	return &authenticator.Response{User: &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}}, true, nil
}

// authorizer decides about requests: members of system:masters and always-allowed paths pass, all else the API server is asked
// about, and its answers are remembered for a while.
type authorizer struct {
	reviewer
	always    []string
	reviews   authorizationclient.SubjectAccessReviewInterface // nil: nobody to ask
	cache     *utilcache.LRUExpireCache                        // spec as JSON → SubjectAccessReviewStatus
	allowTTL  time.Duration
	refuseTTL time.Duration
}

// newAuthorizer returns an authorizer that asks through client, or nobody if it is nil.
func newAuthorizer(cfg AuthorizationConfig, client kubernetes.Interface, r reviewer) *authorizer {
	a := &authorizer{
		reviewer:  r,
		always:    cfg.AlwaysAllowPaths,
		cache:     utilcache.NewLRUExpireCache(decisionCacheSize),
		allowTTL:  cfg.AllowedTTL,
		refuseTTL: cfg.DeniedTTL,
	}
	if client != nil {
		a.reviews = client.AuthorizationV1().SubjectAccessReviews()
	}
	return a
}

// allowed says whether u may do verb, a lower-case HTTP method, on path. An error means that nobody could say.
func (a *authorizer) allowed(ctx context.Context, u user.Info, verb, path string) (ok bool, reason string, err error) {
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) || alwaysAllowed(path, a.always) {
		return true, "", nil
	}
	if a.reviews == nil {
		return false, "", nil
	}
	spec := accessSpec(u, verb, path)
	key, err := json.Marshal(spec)
	if err != nil {
		return false, "", fmt.Errorf("encode access review: %w", err)
	}
	if known, found := a.cache.Get(string(key)); found {
		status := known.(authorizationv1.SubjectAccessReviewStatus)
		return status.Allowed && !status.Denied, status.Reason, nil
	}
	var answer *authorizationv1.SubjectAccessReview
	err = a.ask(ctx, func(ctx context.Context) (err error) {
		answer, err = a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, "", fmt.Errorf("review access: %w", err)
	}
	ttl := a.refuseTTL
	if answer.Status.Allowed {
		ttl = a.allowTTL
	}
	if len(key) < 10_000 { // as upstream: a client must not fill our memory with what it asks
		a.cache.Add(string(key), answer.Status, ttl)
	}
	return answer.Status.Allowed && !answer.Status.Denied, answer.Status.Reason, nil
}

func accessSpec(u user.Info, verb, path string) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	}
	if extra := u.GetExtra(); len(extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(extra))
		for k, v := range extra {
			spec.Extra[k] = v
		}
	}
	return spec
}

// alwaysAllowed says whether path is in the list, whose items are exact or end in *. A leading slash makes no difference.
func alwaysAllowed(path string, list []string) bool {
	path = strings.TrimPrefix(path, "/")
	for _, item := range list {
		item = strings.TrimPrefix(item, "/")
		if prefix, open := strings.CutSuffix(item, "*"); open {
			if strings.HasPrefix(path, prefix) {
				return true
			}
		} else if path == item {
			return true
		}
	}
	return false
}
