package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clockTicks per second in /proc/<pid>/stat; Linux reports 100 on every architecture of Go.
const clockTicks = 100

const kib = 1. / 1024 // MiB

var errNoProcess = errors.New("no such process")

type memory struct {
	resident float64 // now, VmRSS
	peak     float64 // most so far, VmHWM
}

func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return parseStat(string(text))
}

func memoryOf(pid int) (memory, error) {
	text, err := os.ReadFile(procFile(pid, "status"))
	if err != nil {
		return memory{}, fmt.Errorf("read memory: %w", err)
	}
	return parseStatus(string(text))
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// parseStat returns the processor seconds in the text of /proc/<pid>/stat, see proc_pid_stat(5). The name in
// parentheses may hold spaces and parentheses.
func parseStat(text string) (seconds float64, err error) {
	rest := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // from field 3, the state, on
	if len(rest) < 13 {
		return 0, fmt.Errorf("parse process status %q: too short", text)
	}
	user, err1 := strconv.Atoi(rest[11])
	system, err2 := strconv.Atoi(rest[12])
	return float64(user+system) / clockTicks, errors.Join(err1, err2)
}

func parseStatus(text string) (memory, error) {
	var m memory
	found := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*float64{"VmRSS": &m.resident, "VmHWM": &m.peak}[name]
		if into == nil {
			continue
		}
		n, err := strconv.ParseFloat(firstField(strings.TrimSpace(value)), 64)
		if err != nil {
			return memory{}, fmt.Errorf("parse memory: %w", err)
		}
		*into = n * kib
		found++
	}
	if found < 2 {
		return memory{}, fmt.Errorf("parse memory: %w", errNoProcess)
	}
	return m, nil
}

func itoa(n int) string { return strconv.Itoa(n) }
