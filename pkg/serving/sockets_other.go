//go:build !unix

package serving

import (
	"errors"
	"syscall"
)

// socketOptions refuses what other systems have no equivalent of; nil if nothing is wanted.
func socketOptions(sharePort, shareAddresses bool) func(network, address string, c syscall.RawConn) error {
	if !sharePort && !shareAddresses {
		return nil
	}
	return func(string, string, syscall.RawConn) error {
		return errors.New("--permit-port-sharing, --permit-address-sharing: not available on this system")
	}
}
