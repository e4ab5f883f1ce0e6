// Package kubeclient makes client configurations: from a kubeconfig or the pod's service account, with the user agent of a purpose, or as
// another service account.
package kubeclient

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"

	"minikcm/pkg/flagcheck"
)

// Load builds a client configuration from a kubeconfig file and an address, which takes precedence. Both empty mean the service account of
// the pod; the error is [rest.ErrNotInCluster] if there is none. Any other error is one line that names flag, without its dashes, or
// --master. Nothing is asked over the network.
func Load(flag, file, address string) (*rest.Config, error) {
	if file == "" && address == "" {
		cfg, err := rest.InClusterConfig()
		switch {
		case errors.Is(err, rest.ErrNotInCluster):
			return nil, fmt.Errorf("--%s: needed to reach an API server, because this process does not run in a pod with a service account: %w", flag, err)
		case err != nil:
			return nil, fmt.Errorf("service account of the pod: %w", err)
		}
		return cfg, err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = address
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err == nil {
		if _, _, err = rest.DefaultServerUrlFor(cfg); err != nil && address != "" {
			file = "" // it is the address that is wrong
		}
	}
	if err == nil {
		// The files that a kubeconfig names are read when the first client is built: do it where the flag is known.
		_, err = rest.TransportFor(cfg)
	}
	if err != nil {
		if file == "" {
			flag, file = "master", address
		}
		return nil, fmt.Errorf("--%s=%s: %w", flag, file, flagcheck.OneLine(err))
	}
	return cfg, nil
}

// UserAgent is how requests of a program name themselves; each client appends a slash and its purpose, see [WithAgent].
func UserAgent(program string) string {
	v := version.Get()
	commit := v.GitCommit
	if len(commit) > 7 {
		commit = commit[:7]
	}
	if commit == "" || strings.HasPrefix(commit, "$") {
		commit = "unknown"
	}
	semver, _, _ := strings.Cut(v.GitVersion, "-") // build metadata adds nothing for the reader of an audit log
	return fmt.Sprintf("%s/%s (%s/%s) kubernetes/%s", program, semver, runtime.GOOS, runtime.GOARCH, commit)
}

// WithAgent returns a copy of base whose user agent ends in a slash and purpose.
func WithAgent(base *rest.Config, purpose string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(base), purpose)
}
