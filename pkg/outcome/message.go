package outcome

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"time"
)

// from is where a connection comes from, as package net writes it.
var from = regexp.MustCompile(`[\w.:%\[\]]+:\d+->`)

// ForUsers is the text of an error for events and conditions. It leaves out the ports and streams that errors of connections name, ours and, where a webhook
// fails, the API server's: with them the same failure would have another text each time. The log has them.
func EventMessage(err error) string {
	var late interface{ WriteTimeout() time.Duration } // what a write has, which says more than that it was not enough
	var transport *url.Error
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("no answer from the API server in the %v that a write has, admission may be slow", late.WriteTimeout())
	case errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded):
		return "no answer from the API server"
	}
	return from.ReplaceAllString(err.Error(), "")
}
