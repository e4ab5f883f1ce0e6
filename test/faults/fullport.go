package faults

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// fullPort is a port whose queue of connections nobody accepts is full: the kernel drops what comes then, and who dials goes on trying.
type fullPort struct {
	fd    int
	queue []net.Conn // what fills it
}

// fillTries is far more than a queue of the shortest length takes.
const fillTries = 16

// fillPort fills a loopback port that nobody else listens on.
func fillPort(port int) (*fullPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("fill port %d: %w", port, err)
	}
	f := &fullPort{fd: fd}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(fd, 0),
	)
	for range fillTries {
		if err != nil {
			break
		}
		var c net.Conn
		if c, err = net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), 200*time.Millisecond); err == nil {
			f.queue = append(f.queue, c)
		}
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return f, nil
	}
	f.close()
	return nil, fmt.Errorf("fill port %d: %w", port, errors.Join(err, errors.New("its queue does not get full")))
}

// close frees the port: who dials is refused, or gets to whoever listens next.
func (f *fullPort) close() {
	if f == nil {
		return
	}
	_ = unix.Close(f.fd) // resets what is in the queue
	for _, c := range f.queue {
		_ = c.Close()
	}
}
