package kubeclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	tokenLifetime = time.Hour // as in kube-controller-manager v1.37
	// tokenTimeout bounds the fetch of a token.
	tokenTimeout = 30 * time.Second
)

// AsServiceAccount returns base with the identity of a service account of kube-system. The first request
// fetches a token, and creates a missing account. guard is applied below, so its deadlines begin after the
// fetch.
func AsServiceAccount(base *rest.Config, name string, guard func(*rest.Config)) (*rest.Config, error) {
	client, err := corev1client.NewForConfig(WithAgent(base, "service-accounts"))
	if err != nil {
		return nil, fmt.Errorf("build the client of service accounts: %w", err)
	}
	account := &serviceAccount{client: client.ServiceAccounts(metav1.NamespaceSystem), name: name}
	tokens := transport.NewCachedTokenSource(account)
	flight := new(singleflight.Group)
	cfg := rest.AnonymousClientConfig(base)
	cfg.UserAgent = WithAgent(base, name).UserAgent
	guard(cfg)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &bearer{tokens: tokens, next: rt, flight: flight} })
	return cfg, nil
}

// serviceAccount is a source of tokens.
type serviceAccount struct {
	client corev1client.ServiceAccountInterface
	name   string
}

// Token implements oauth2.TokenSource.
func (s *serviceAccount) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	token, err := s.requestToken(ctx)
	if apierrors.IsNotFound(err) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: s.name}}
		if _, err = s.client.Create(ctx, account, metav1.CreateOptions{}); err == nil || apierrors.IsAlreadyExists(err) {
			token, err = s.requestToken(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("get a token of service account %s/%s: %w", metav1.NamespaceSystem, s.name, err)
	}
	return token, nil
}

func (s *serviceAccount) requestToken(ctx context.Context) (*oauth2.Token, error) {
	seconds := int64(tokenLifetime.Seconds())
	sent := time.Now()
	response, err := s.client.CreateToken(ctx, s.name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	// The lifetime may be shorter than tokenLifetime, and the clock of the API server may be behind.
	life := response.Status.ExpirationTimestamp.Sub(sent)
	return &oauth2.Token{
		AccessToken: response.Status.Token,
		TokenType:   "Bearer",
		Expiry:      sent.Add(max(life*4/5, time.Minute)),
	}, nil
}
