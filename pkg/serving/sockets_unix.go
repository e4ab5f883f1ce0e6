//go:build unix

package serving

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketOptions returns a function that sets SO_REUSEPORT and SO_REUSEADDR before a socket is bound.
func socketOptions(sharePort, shareAddresses bool) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var portErr, addressErr error
		err := c.Control(func(fd uintptr) {
			if sharePort {
				portErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
			if shareAddresses {
				addressErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}
		})
		return errors.Join(err, portErr, addressErr)
	}
}
