//go:build unix

package serving

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketOptions returns a function that sets SO_REUSEPORT and SO_REUSEADDR before a socket is bound, or nil
// without options.
func socketOptions(sharePort, shareAddresses bool) func(network, address string, c syscall.RawConn) error {
	if !sharePort && !shareAddresses {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var errs error
		set := func(option int) func(fd uintptr) {
			return func(fd uintptr) { errs = errors.Join(errs, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1)) }
		}
		if sharePort {
			errs = errors.Join(errs, c.Control(set(unix.SO_REUSEPORT)))
		}
		if shareAddresses {
			errs = errors.Join(errs, c.Control(set(unix.SO_REUSEADDR)))
		}
		return errs
	}
}
