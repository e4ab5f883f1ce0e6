package serving

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// The ConfigMap in which the API server publishes the authorities that it trusts.
const (
	authConfigMapNamespace = metav1.NamespaceSystem
	authConfigMapName      = "extension-apiserver-authentication"
)

// clusterAuth follows that ConfigMap. It never stops the process. The values that were read last stay in force while the ConfigMap
// is missing, broken or cannot be read. Before the first read no client certificate counts.
type clusterAuth struct {
	clientCA, proxyCA *dynamiccertificates.ConfigMapCAController
	headers           *headerrequest.RequestHeaderAuthRequestController
}

func newClusterAuth(client kubernetes.Interface) (*clusterAuth, error) {
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", authConfigMapNamespace, authConfigMapName, "client-ca-file", client)
	if err != nil {
		return nil, err
	}
	proxyCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController("request-header-ca", authConfigMapNamespace, authConfigMapName, "requestheader-client-ca-file", client)
	if err != nil {
		return nil, err
	}
	return &clusterAuth{clientCA: clientCA, proxyCA: proxyCA, headers: headerrequest.NewRequestHeaderAuthRequestController(
		authConfigMapName, authConfigMapNamespace, client, "requestheader-username-headers", "requestheader-uid-headers",
		"requestheader-group-headers", "requestheader-extra-headers-prefix", "requestheader-allowed-names")}, nil
}

func (c *clusterAuth) frontProxy() *frontProxy {
	return &frontProxy{
		ca:                c.proxyCA,
		allowedNames:      headerrequest.StringSliceProviderFunc(c.headers.AllowedClientNames),
		usernames:         headerrequest.StringSliceProviderFunc(c.headers.UsernameHeaders),
		uids:              headerrequest.StringSliceProviderFunc(c.headers.UIDHeaders),
		groups:            headerrequest.StringSliceProviderFunc(c.headers.GroupHeaders),
		extraHeaderPrefix: headerrequest.StringSliceProviderFunc(c.headers.ExtraHeaderPrefixes),
	}
}

// run follows the ConfigMap until ctx ends. Informers that sleep end up to a minute later.
func (c *clusterAuth) run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { c.clientCA.Run(ctx, 1) })
	following.Go(func() { c.proxyCA.Run(ctx, 1) })
	following.Go(func() { c.headers.Run(ctx, 1) })
}
