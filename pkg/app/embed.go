package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"

	"minikcm/pkg/controller"
)

// DefaultConfig is the configuration of a manager inside another program: what the command has without any flag, for these controllers, with the API
// server and the credentials of cfg. cfg is copied; its rate limits, timeout, content type, compression, user agent and warning handler are replaced.
// Such a program will usually want to change Election and Serving. A controller that its own Config switches off is left out. It fails if cfg is nil, or
// if the host name, part of the identity, cannot be read; [New] refuses a cfg with a Dial, and one with a Transport beside Election or WatchLiveness.
func DefaultConfig(cfg *rest.Config, controllers []controller.Registration) (Config, error) {
	if cfg == nil {
		return Config{}, errors.New("no rest.Config")
	}
	o := NewOptions(controllers)
	reach := rest.CopyConfig(cfg)
	reach.RateLimiter = nil
	reach.Timeout = 0 // it would end watches
	reach.WarningHandler, reach.WarningHandlerWithContext = rest.NoWarnings{}, nil
	if err := o.Client.apply(reach); err != nil {
		return Config{}, err
	}
	out, err := o.configFor(reach)
	out.Controllers = slices.DeleteFunc(slices.Clone(controllers), func(c controller.Registration) bool {
		return c.Disabled != nil && c.Disabled() // one that a command line has to name is on
	})
	return out, err
}

// ControllersNamed returns those of [Controllers] that have these names or aliases, in start order.
func ControllersNamed(items ...string) ([]controller.Registration, error) {
	all := Controllers()
	items = canonical(items, aliases(all))
	for _, item := range items {
		if !slices.Contains(names(all), item) {
			return nil, fmt.Errorf("no controller is called %q; known are %s", item, strings.Join(namesWithAliases(all), ", "))
		}
	}
	return slices.DeleteFunc(all, func(c controller.Registration) bool { return !slices.Contains(items, c.Name) }), nil
}

// validate finds what no part of the manager would find for itself.
func (c *Config) validate() error {
	if c.REST == nil {
		return errors.New("no rest.Config")
	}
	var errs []error
	if c.REST.Dial != nil {
		errs = append(errs, errors.New("rest.Config.Dial would not be used: the manager makes connections that it can cut"))
	}
	if c.REST.Transport != nil && (c.Election.Enabled || c.WatchLiveness) {
		errs = append(errs, errors.New("rest.Config.Transport has connections that the manager cannot cut: Election and WatchLiveness do not go with it"))
	}
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) { // the command locks it, other programs may have replaced the gates
		errs = append(errs, errors.New("client-go's feature gate AtomicFIFO is off: without it a cache cannot say which version it has reached"))
	}
	for _, r := range c.Controllers {
		if r.Config != nil {
			errs = append(errs, r.Config.Validate()...)
		}
	}
	return utilerrors.NewAggregate(errs)
}
