package process

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Messages of the program while it waits for the API server, when the wait is over, and when the controllers begin to
// work.
const (
	waitingMessage   = `"Waiting for the API server"`
	availableMessage = `"API server is available"`
	startedMessage   = `"Term begins"`
)

// follower parses the log of the program, as an io.Writer.
type follower struct {
	copy            io.Writer // nil: the log goes nowhere else
	started, giveUp func()    // giveUp is called when the API server has not been there for too long
	rest            []byte    // of a line that has not ended

	lock      sync.Mutex
	last      lastReport
	available bool // the API server
	waited    *time.Timer
}

type lastReport struct {
	reason        string
	serverMissing bool // the API server is not there
}

// header is the part of a klog line before the message, and reason the part that ends with the reason.
var (
	header = regexp.MustCompile(`^[IWEF]\d{4} [^]]*\] `)
	reason = regexp.MustCompile(`^("command failed" err|` + waitingMessage + ` .*reason)=("(?:[^"\\]|\\.)*")`)
)

func failureReason(line string) string {
	line = header.ReplaceAllString(line, "")
	if parts := reason.FindStringSubmatch(line); parts != nil {
		if text, err := strconv.Unquote(parts[2]); err == nil {
			return text
		}
	}
	return strings.TrimPrefix(line, "Error: ")
}

// Write takes a part of the log.
func (f *follower) Write(part []byte) (int, error) {
	f.rest = append(f.rest, part...)
	for {
		line, rest, ended := bytes.Cut(f.rest, []byte("\n"))
		if !ended {
			return len(part), nil
		}
		f.parseLine(string(line))
		f.rest = rest
	}
}

func (f *follower) flushLine() lastReport {
	if len(f.rest) > 0 {
		f.parseLine(string(f.rest))
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.waited != nil {
		f.waited.Stop()
	}
	return f.last
}

func (f *follower) parseLine(line string) {
	line = strings.TrimRight(line, "\r")
	if f.copy != nil {
		_, _ = fmt.Fprintln(f.copy, line)
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	switch {
	case strings.Contains(line, availableMessage):
		f.available = true
	case strings.Contains(line, startedMessage):
		f.available = true // programs of earlier versions do not log availableMessage
		f.started()
	case strings.Contains(line, waitingMessage) && f.waited == nil:
		f.waited = time.AfterFunc(serverPatience, func() { f.reportMissingServer(line) })
	case !f.last.serverMissing && strings.TrimSpace(line) != "":
		f.last.reason = failureReason(line)
	}
}

// reportMissingServer gives up, unless the API server was there after all.
func (f *follower) reportMissingServer(line string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.available {
		f.last = lastReport{reason: failureReason(line), serverMissing: true}
		f.giveUp()
	}
}
