package serving

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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The ConfigMap in which the API server publishes whom it trusts itself.
const (
	authConfigMapNamespace = metav1.NamespaceSystem
	authConfigMapName      = "extension-apiserver-authentication"
)

// clusterAuth follows that ConfigMap. Nothing else depends on it, so it never stops the process. What was read last stays in force while
// the ConfigMap is missing, broken or cannot be read; before it was ever read, the certificates it would vouch for do not count.
//
// The ConfigMap providers of k8s.io/apiserver v0.37 would be three watches of this one object, leave goroutines behind when they are
// stopped, for up to a minute while the API server is away, go on to trust CAs that are taken out of the ConfigMap, and log each failed
// attempt instead of each change.
type clusterAuth struct {
	client   kubernetes.Interface
	clientCA *caBundle
	proxyCA  *caBundle
	headers  atomic.Pointer[proxyHeaders] // never nil

	lock  sync.Mutex
	state lookup // what was logged last
	known bool   // the ConfigMap was read at least once
}

// proxyHeaders are the lists of the ConfigMap by their keys.
type proxyHeaders map[string][]string

const (
	keyAllowedNames  = "requestheader-allowed-names"
	keyUsernames     = "requestheader-username-headers"
	keyUIDs          = "requestheader-uid-headers"
	keyGroups        = "requestheader-group-headers"
	keyExtraPrefixes = "requestheader-extra-headers-prefix"
)

func newClusterAuth(client kubernetes.Interface) *clusterAuth {
	c := &clusterAuth{client: client, clientCA: &caBundle{name: "client-ca"}, proxyCA: &caBundle{name: "request-header-ca"}}
	c.headers.Store(&proxyHeaders{})
	return c
}

// frontProxy is what the ConfigMap says about proxies, now and later.
func (c *clusterAuth) frontProxy() *frontProxy {
	list := func(key string) headerrequest.StringSliceProvider {
		return headerrequest.StringSliceProviderFunc(func() []string { return (*c.headers.Load())[key] })
	}
	return &frontProxy{
		ca:                c.proxyCA,
		allowedNames:      list(keyAllowedNames),
		usernames:         list(keyUsernames),
		uids:              list(keyUIDs),
		groups:            list(keyGroups),
		extraHeaderPrefix: list(keyExtraPrefixes),
	}
}

// run follows the ConfigMap until ctx ends, and returns when every goroutine has.
func (c *clusterAuth) run(ctx context.Context) {
	informer := cache.NewSharedInformer(c.configMap(), &corev1.ConfigMap{}, 0)
	// Both fail only on an informer that has been started.
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { c.failed(ctx, err) })
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.read(ctx, obj.(*corev1.ConfigMap)) },
		UpdateFunc: func(_, obj any) { c.read(ctx, obj.(*corev1.ConfigMap)) },
		DeleteFunc: func(any) { c.changed(ctx, lookupMissing, nil) },
	})
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) && len(informer.GetStore().ListKeys()) == 0 {
		c.changed(ctx, lookupMissing, nil)
	}
}

// configMap lists and watches the one ConfigMap.
func (c *clusterAuth) configMap() cache.ListerWatcher {
	maps := c.client.CoreV1().ConfigMaps(authConfigMapNamespace)
	only := fields.OneTermEqualSelector("metadata.name", authConfigMapName).String()
	return plainLists{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return maps.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return maps.Watch(ctx, o)
		},
	}}
}

// plainLists keeps a reflector from streaming its list. After a streaming list that finds no API server client-go v0.37 sleeps for up to a
// minute, and does not wake up when it is told to stop.
type plainLists struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// read takes over what the ConfigMap says; a part that is broken leaves the last good one in force.
func (c *clusterAuth) read(ctx context.Context, cm *corev1.ConfigMap) {
	headers, err := parseProxyHeaders(cm.Data)
	if err == nil {
		c.headers.Store(&headers)
		err = c.clientCA.set([]byte(cm.Data["client-ca-file"]))
	}
	if err == nil {
		err = c.proxyCA.set([]byte(cm.Data["requestheader-client-ca-file"]))
	}
	if err != nil {
		c.changed(ctx, lookupBroken, err)
		return
	}
	c.changed(ctx, lookupRead, nil)
}

// failed is told of every failed list or watch. Expired and closed watches are part of life.
func (c *clusterAuth) failed(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
	case apierrors.IsForbidden(err):
		c.changed(ctx, lookupForbidden, err)
	default:
		c.changed(ctx, lookupUnreachable, err)
	}
}

// changed logs once per change of state, not once per attempt.
func (c *clusterAuth) changed(ctx context.Context, state lookup, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.state == state {
		return
	}
	c.state = state
	c.known = c.known || state == lookupRead
	log := klog.FromContext(ctx).WithValues("configMap", klog.KRef(authConfigMapNamespace, authConfigMapName))
	if err != nil {
		log.Error(err, state.message(c.known))
		return
	}
	log.Info(state.message(c.known))
}

// lookup is how reading the ConfigMap goes.
type lookup int

const (
	lookupPending lookup = iota // nothing was heard yet
	lookupRead
	lookupBroken
	lookupMissing
	lookupForbidden
	lookupUnreachable
)

// message says what the state means for clients with certificates; known tells whether the ConfigMap was ever read.
func (l lookup) message(known bool) string {
	consequence := "client certificates do not count until they are read"
	if known {
		consequence = "those read last stay in force"
	}
	switch l {
	case lookupRead:
		return "Client CAs of the cluster read"
	case lookupBroken:
		return "Client CAs of the cluster are broken, " + consequence
	case lookupMissing:
		return "Client CAs of the cluster are not published, " + consequence
	case lookupForbidden:
		return "Client CAs of the cluster may not be read, " + consequence +
			"; bind the Role extension-apiserver-authentication-reader or set --authentication-skip-lookup"
	default:
		return "Client CAs of the cluster cannot be read now, " + consequence
	}
}

// parseProxyHeaders reads the lists of the ConfigMap; each is JSON, and may be missing.
func parseProxyHeaders(data map[string]string) (proxyHeaders, error) {
	h := proxyHeaders{}
	for _, key := range []string{keyAllowedNames, keyUsernames, keyUIDs, keyGroups, keyExtraPrefixes} {
		if data[key] == "" {
			continue
		}
		var list []string
		if err := json.Unmarshal([]byte(data[key]), &list); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		h[key] = list
	}
	return h, nil
}

// caBundle is a set of CA certificates that can be replaced. Without any nobody is trusted.
type caBundle struct {
	name      string
	current   atomic.Pointer[dynamiccertificates.CAContentProvider] // nil: nobody is trusted
	listeners []dynamiccertificates.Listener                        // all are added before the first set
}

// set replaces the certificates. Empty means nobody is trusted.
func (b *caBundle) set(pem []byte) error {
	if len(bytes.TrimSpace(pem)) == 0 {
		b.current.Store(nil)
	} else {
		next, err := dynamiccertificates.NewStaticCAContent(b.name, pem)
		if err != nil {
			return err
		}
		b.current.Store(&next)
	}
	for _, l := range b.listeners {
		l.Enqueue()
	}
	return nil
}

// Name implements dynamiccertificates.CAContentProvider, as do the next three.
func (b *caBundle) Name() string { return b.name }

func (b *caBundle) AddListener(l dynamiccertificates.Listener) { b.listeners = append(b.listeners, l) }

func (b *caBundle) CurrentCABundleContent() []byte {
	if current := b.current.Load(); current != nil {
		return (*current).CurrentCABundleContent()
	}
	return nil
}

func (b *caBundle) VerifyOptions() (x509.VerifyOptions, bool) {
	if current := b.current.Load(); current != nil {
		return (*current).VerifyOptions()
	}
	return x509.VerifyOptions{}, false
}
