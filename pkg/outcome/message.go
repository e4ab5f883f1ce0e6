package outcome

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"time"
)

// localAddress matches the source of a connection in errors of package net.
var localAddress = regexp.MustCompile(`[\w.:%\[\]]+:\d+->`)

// EventMessage returns the text of an error for events and conditions. Ports and streams of connections are
// left out: they would give the same failure another text each time. The log contains them.
func EventMessage(err error) string {
	var late interface{ WriteTimeout() time.Duration } // an error of package leadership
	var transport *url.Error
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("API server did not respond within the write timeout of %v, admission may be slow", late.WriteTimeout())
	case errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded):
		return "API server did not respond"
	}
	return localAddress.ReplaceAllString(err.Error(), "")
}
