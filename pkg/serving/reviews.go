package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authz "k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

const (
	// reviewTimeout bounds one review with the retries of client-go. k8s.io/apiserver v0.37 bounds one try.
	reviewTimeout = 10 * time.Second
	// reviewRate and reviewBurst bound the reviews of each kind, per second and at once, as in
	// k8s.io/apiserver v0.37: every client of the port can cause a review with a new token or path.
	reviewRate  = 200
	reviewBurst = 400
	// decisionCacheSize bounds the cached results of access reviews, as upstream.
	decisionCacheSize = 8192
	// maxSpecSize is the size of the largest access review that is cached, as upstream, so that clients cannot
	// fill the memory.
	maxSpecSize = 10_000
)

var errTooManyReviews = errors.New("too many reviews of clients")

func newReviewLimit(clk clock.PassiveClock) flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reviewRate, reviewBurst, clk)
}

// sendReview calls send with a timeout. It returns errTooManyReviews, without calling send, if the limit is reached.
func sendReview[T any](ctx context.Context, limit flowcontrol.PassiveRateLimiter, send func(context.Context) (T, error)) (T, error) {
	if !limit.TryAccept() {
		var none T
		return none, errTooManyReviews
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	return send(ctx)
}

// newTokenReviewer returns an authenticator that sends TokenReviews. Results other than errors are cached for ttl.
func newTokenReviewer(client kubernetes.Interface, ttl time.Duration, clk clock.PassiveClock) authenticator.Token {
	limit, reviews := newReviewLimit(clk), client.AuthenticationV1().TokenReviews()
	send := func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		review, err := sendReview(ctx, limit, func(ctx context.Context) (*authenticationv1.TokenReview, error) {
			return reviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		})
		if err != nil {
			return nil, false, fmt.Errorf("review token: %w", err)
		}
		return identity(review.Status)
	}
	return cache.New(authenticator.TokenFunc(send), false, ttl, ttl)
}

// identity returns the user of a review. It returns false for an unknown token.
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

// authorizer allows members of system:masters and always allowed paths. SubjectAccessReviews, whose results
// are cached, decide about all other requests.
type authorizer struct {
	cfg           AuthorizationConfig
	alwaysAllowed authz.Authorizer
	limit         flowcontrol.PassiveRateLimiter
	reviews       authorizationclient.SubjectAccessReviewInterface // nil denies
	cache         *utilcache.LRUExpireCache                        // spec as JSON → SubjectAccessReviewStatus
}

// newAuthorizer returns an authorizer. client may be nil.
func newAuthorizer(cfg AuthorizationConfig, client kubernetes.Interface, clk clock.PassiveClock) (*authorizer, error) {
	alwaysAllowed, err := path.NewAuthorizer(cfg.AlwaysAllowPaths)
	a := &authorizer{cfg: cfg, alwaysAllowed: alwaysAllowed, limit: newReviewLimit(clk), cache: utilcache.NewLRUExpireCache(decisionCacheSize)}
	if client != nil {
		a.reviews = client.AuthorizationV1().SubjectAccessReviews()
	}
	return a, err
}

// allowed reports whether u may do verb, a lower-case HTTP method, on urlPath. The error is that of the review.
func (a *authorizer) allowed(ctx context.Context, u user.Info, verb, urlPath string) (ok bool, reason string, err error) {
	always, _, _ := a.alwaysAllowed.Authorize(ctx, authz.AttributesRecord{Path: urlPath})
	if always == authz.DecisionAllow || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return true, "", nil
	}
	if a.reviews == nil {
		return false, "", nil
	}
	spec := accessSpec(u, verb, urlPath)
	key, err := json.Marshal(spec)
	if err != nil {
		return false, "", fmt.Errorf("encode access review: %w", err)
	}
	cached, found := a.cache.Get(string(key))
	status, _ := cached.(authorizationv1.SubjectAccessReviewStatus)
	if !found {
		review, err := sendReview(ctx, a.limit, func(ctx context.Context) (*authorizationv1.SubjectAccessReview, error) {
			return a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		})
		if err != nil {
			return false, "", fmt.Errorf("review access: %w", err)
		}
		status = review.Status
		ttl := a.cfg.DeniedTTL
		if status.Allowed {
			ttl = a.cfg.AllowedTTL
		}
		if len(key) < maxSpecSize {
			a.cache.Add(string(key), status, ttl)
		}
	}
	return status.Allowed && !status.Denied, status.Reason, nil
}

func accessSpec(u user.Info, verb, urlPath string) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: urlPath, Verb: verb}, Extra: map[string]authorizationv1.ExtraValue{},
	}
	for k, v := range u.GetExtra() {
		spec.Extra[k] = v
	}
	return spec
}
