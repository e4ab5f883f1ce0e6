package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clockTicks per second in /proc/<pid>/stat; Linux tells programs 100 on every architecture that Go runs on.
const clockTicks = 100

const kib = 1. / 1024 // MiB

var errNoProcess = errors.New("no such process")

// memory of a process in MiB, as the kernel counts it in /proc/<pid>/status.
type memory struct {
	resident float64 // now, VmRSS
	peak     float64 // most so far, VmHWM
}

// cpuSeconds that the process has used so far, in user and kernel mode, all its threads together.
func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	s, err := parseStat(string(text))
	return s.cpu, err
}

func memoryOf(pid int) (memory, error) {
	text, err := os.ReadFile(procFile(pid, "status"))
	if err != nil {
		return memory{}, fmt.Errorf("read memory: %w", err)
	}
	return parseStatus(string(text))
}

// childNamed finds the one child process of this process whose program has that name, of at most 15 characters.
func childNamed(name string) (pid int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if s, err := parseStat(string(text)); err == nil && s.parent == os.Getpid() && s.name == name {
			return s.pid, nil
		}
	}
	return 0, fmt.Errorf("find child %s: %w", name, errNoProcess)
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// stat is what is read from /proc/<pid>/stat.
type stat struct {
	pid, parent int
	name        string
	cpu         float64 // seconds
}

// parseStat: see proc_pid_stat(5). The name is in parentheses and may hold spaces and parentheses itself.
func parseStat(text string) (stat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("parse process status %q: no name", text)
	}
	rest := strings.Fields(text[end+1:]) // from field 3, the state, on
	if len(rest) < 13 {
		return stat{}, fmt.Errorf("parse process status %q: too short", text)
	}
	var numbers [4]int
	for i, field := range []string{strings.TrimSpace(text[:open]), rest[1], rest[11], rest[12]} {
		n, err := strconv.Atoi(field)
		if err != nil {
			return stat{}, fmt.Errorf("parse process status: %w", err)
		}
		numbers[i] = n
	}
	return stat{
		pid: numbers[0], parent: numbers[1], name: text[open+1 : end],
		cpu: float64(numbers[2]+numbers[3]) / clockTicks,
	}, nil
}

// parseStatus reads the memory lines of /proc/<pid>/status. A process that has ended has none.
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
