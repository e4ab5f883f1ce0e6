package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

func contents(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

func firstField(text string) string {
	field, _, _ := strings.Cut(text, " ")
	return field
}

// thisMachine describes the machine. The load is the average of the last minute.
func thisMachine() string {
	return fmt.Sprintf("%d cores, %s, load before the start %s", runtime.NumCPU(), runtime.Version(), firstField(contents("/proc/loadavg")))
}
