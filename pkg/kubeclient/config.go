// Package kubeclient builds client configurations: from a kubeconfig or the service account of the pod, with
// the user agent of a purpose, or as another service account.
package kubeclient

import (
	"fmt"
	"runtime"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"

	"minikcm/pkg/flagcheck"
)

// Load returns a client configuration from a kubeconfig file and an address, which takes precedence. If both
// are empty, it returns the service account of the pod. An error is one line with the name of the flag, or with
// --master. Load sends no request.
func Load(flag, file, address string) (*rest.Config, error) {
	if file == "" && address == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--%s: needed to reach an API server, because this process does not run in a pod with a service account: %w", flag, err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags(address, file)
	if err == nil {
		if _, _, err = rest.DefaultServerUrlFor(cfg); err != nil && address != "" {
			file = "" // the address is wrong
		}
	}
	if err == nil {
		// Read the files that the kubeconfig names, while the flag is known.
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

// UserAgent returns the user agent of a program. Each client appends a slash and its purpose, see [WithAgent].
func UserAgent(program string) string {
	v := version.Get()
	commit := v.GitCommit
	if strings.HasPrefix(commit, "$") { // not set by the build
		commit = "unknown"
	}
	semver, _, _ := strings.Cut(v.GitVersion, "-") // without the pre-release, as client-go
	return fmt.Sprintf("%s/%s (%s/%s) kubernetes/%.7s", program, semver, runtime.GOOS, runtime.GOARCH, commit)
}

// WithAgent returns a copy of base whose user agent ends in a slash and purpose.
func WithAgent(base *rest.Config, purpose string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(base), purpose)
}
