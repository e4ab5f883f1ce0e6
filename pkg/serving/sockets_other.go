//go:build !unix

package serving

import (
	"errors"
	"syscall"
)

// socketOptions returns a function that fails, or nil without options: only Unix systems have these options.
func socketOptions(sharePort, shareAddresses bool) func(network, address string, c syscall.RawConn) error {
	if !sharePort && !shareAddresses {
		return nil
	}
	return func(string, string, syscall.RawConn) error {
		return errors.New("--permit-port-sharing, --permit-address-sharing: not available on this system")
	}
}
