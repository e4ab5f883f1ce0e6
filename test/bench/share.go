package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// timeIn is the processor time that a profile shows in functions that match pattern, with all they call.
func timeIn(ctx context.Context, profile, pattern string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-unit=ms", "-nodefraction=0", "-focus="+pattern, profile)
	report, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("read profile: %w", err)
	}
	return accounted(string(report))
}

var accounting = regexp.MustCompile(`Showing nodes accounting for ([0-9.]+)(?:ms)?,.* of ([0-9.]+)(?:ms)? total`)

// accounted reads the time that a report of go tool pprof, in milliseconds, is about.
func accounted(report string) (time.Duration, error) {
	found := accounting.FindStringSubmatch(report)
	if found == nil {
		return 0, fmt.Errorf("no summary in the report of go tool pprof:\n%.300s", report)
	}
	ms, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		return 0, fmt.Errorf("read report of go tool pprof: %w", err)
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}
