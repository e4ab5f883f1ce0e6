package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"minikcm/pkg/controller"
)

// DefaultConfig is the configuration of a manager in a program of one's own: what the command has without any flag, for these controllers and
// with the API server and the credentials of cfg. cfg is copied. Of it, limits of requests, timeout, content type, compression, user agent and warning handler do not count.
// A program that is not alone will want to change Election and Serving.
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
	out.Controllers = slices.Clone(controllers) // those too that a command line has to name
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
	for _, r := range c.Controllers {
		if r.Config != nil {
			errs = append(errs, r.Config.Validate()...)
		}
	}
	return errors.Join(errs...)
}
