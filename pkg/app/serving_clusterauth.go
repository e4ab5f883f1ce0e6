package app

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// The ConfigMap in which the API server publishes whom it trusts itself.
const (
	authConfigMapNamespace = metav1.NamespaceSystem
	authConfigMapName      = "extension-apiserver-authentication"
)

// clusterAuth follows that ConfigMap. As long as it is missing or cannot be read, certificates it would vouch for do not
// count; nothing else depends on it, so it never stops the process. What was read last stays valid.
type clusterAuth struct {
	client   kubernetes.Interface
	clientCA *caBundle
	proxyCA  *caBundle
	headers  atomic.Pointer[proxyHeaders]

	lock  sync.Mutex
	state string // what was logged last
}

// proxyHeaders are the lists of the ConfigMap.
type proxyHeaders struct {
	allowedNames, usernames, uids, groups, extraPrefixes []string
}

func newClusterAuth(client kubernetes.Interface) *clusterAuth {
	c := &clusterAuth{client: client, clientCA: &caBundle{name: "client-ca"}, proxyCA: &caBundle{name: "request-header-ca"}}
	c.headers.Store(&proxyHeaders{})
	return c
}

// frontProxy is what the ConfigMap says about proxies, now and later.
func (c *clusterAuth) frontProxy() *frontProxy {
	list := func(pick func(*proxyHeaders) []string) x509request.StringSliceProvider {
		return x509request.StringSliceProviderFunc(func() []string { return pick(c.headers.Load()) })
	}
	return &frontProxy{
		ca:                c.proxyCA,
		allowedNames:      list(func(h *proxyHeaders) []string { return h.allowedNames }),
		usernames:         list(func(h *proxyHeaders) []string { return h.usernames }),
		uids:              list(func(h *proxyHeaders) []string { return h.uids }),
		groups:            list(func(h *proxyHeaders) []string { return h.groups }),
		extraHeaderPrefix: list(func(h *proxyHeaders) []string { return h.extraPrefixes }),
	}
}

// run follows the ConfigMap until ctx ends.
func (c *clusterAuth) run(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(authConfigMapNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", authConfigMapName).String()
		}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	// Both fail only on an informer that has been started.
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { c.failed(ctx, err) })
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.read(ctx, obj.(*corev1.ConfigMap)) },
		UpdateFunc: func(_, obj any) { c.read(ctx, obj.(*corev1.ConfigMap)) },
		DeleteFunc: func(any) { c.missing(ctx) },
	})
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) && len(informer.GetStore().ListKeys()) == 0 {
		c.missing(ctx)
	}
	<-ctx.Done()
}

// read takes over what the ConfigMap says; a part that is broken leaves the last good one in force.
func (c *clusterAuth) read(ctx context.Context, cm *corev1.ConfigMap) {
	headers, err := parseProxyHeaders(cm.Data)
	if err == nil {
		c.headers.Store(headers)
		err = c.clientCA.set([]byte(cm.Data["client-ca-file"]))
	}
	if err == nil {
		err = c.proxyCA.set([]byte(cm.Data["requestheader-client-ca-file"]))
	}
	if err != nil {
		c.changed(ctx, "broken", "Client CAs of the cluster are broken, the last good ones stay in force", err)
		return
	}
	c.changed(ctx, "read", "Client CAs of the cluster read", nil)
}

func (c *clusterAuth) missing(ctx context.Context) {
	c.changed(ctx, "missing", "Client CAs of the cluster are not published, client certificates do not count", nil)
}

// failed is told of every failed list or watch. Expired and closed watches are part of life.
func (c *clusterAuth) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	if apierrors.IsForbidden(err) {
		c.changed(ctx, "forbidden", "Client CAs of the cluster cannot be read, client certificates do not count; "+
			"bind the Role extension-apiserver-authentication-reader or set --authentication-skip-lookup", err)
		return
	}
	c.changed(ctx, "unreachable", "Client CAs of the cluster cannot be read now", err)
}

// changed logs once per change of state, not once per attempt.
func (c *clusterAuth) changed(ctx context.Context, state, message string, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.state == state {
		return
	}
	c.state = state
	log := klog.FromContext(ctx).WithValues("configMap", klog.KRef(authConfigMapNamespace, authConfigMapName))
	if err != nil {
		log.Error(err, message)
		return
	}
	log.Info(message)
}

// parseProxyHeaders reads the lists of the ConfigMap; each is JSON, and may be missing.
func parseProxyHeaders(data map[string]string) (*proxyHeaders, error) {
	h := &proxyHeaders{}
	for key, list := range map[string]*[]string{
		"requestheader-allowed-names":        &h.allowedNames,
		"requestheader-username-headers":     &h.usernames,
		"requestheader-uid-headers":          &h.uids,
		"requestheader-group-headers":        &h.groups,
		"requestheader-extra-headers-prefix": &h.extraPrefixes,
	} {
		if data[key] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(data[key]), list); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return h, nil
}

// caBundle is a set of CA certificates that can be replaced. The zero value trusts nobody.
type caBundle struct {
	name string

	lock      sync.RWMutex
	pem       []byte
	roots     *x509.CertPool
	listeners []dynamiccertificates.Listener
}

// set replaces the certificates. Empty means nobody is trusted.
func (b *caBundle) set(pem []byte) error {
	var roots *x509.CertPool
	if len(bytes.TrimSpace(pem)) > 0 {
		certs, err := certutil.ParseCertsPEM(pem)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		roots = x509.NewCertPool()
		for _, cert := range certs {
			roots.AddCert(cert)
		}
	}
	b.lock.Lock()
	unchanged := bytes.Equal(b.pem, pem)
	b.pem, b.roots = pem, roots
	listeners := b.listeners
	b.lock.Unlock()
	if unchanged {
		return nil
	}
	for _, l := range listeners {
		l.Enqueue()
	}
	return nil
}

// Name implements dynamiccertificates.CAContentProvider, as do the next three.
func (b *caBundle) Name() string { return b.name }

func (b *caBundle) AddListener(l dynamiccertificates.Listener) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.listeners = append(b.listeners, l)
}

func (b *caBundle) CurrentCABundleContent() []byte {
	b.lock.RLock()
	defer b.lock.RUnlock()
	return b.pem
}

func (b *caBundle) VerifyOptions() (x509.VerifyOptions, bool) {
	b.lock.RLock()
	defer b.lock.RUnlock()
	if b.roots == nil {
		return x509.VerifyOptions{}, false
	}
	options := x509request.DefaultVerifyOptions()
	options.Roots = b.roots
	return options, true
}
