package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine says where the numbers come from.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`   // that built this program
	Load   string `json:"load"` // average of one minute before the first turn: well below 1 on an idle machine
}

func (m machine) String() string {
	return fmt.Sprintf("%d cores of %s, Linux %s, %s, load before the start %s", m.Cores, m.CPU, m.Kernel, m.Go, m.Load)
}

// thisMachine leaves empty what it cannot find out.
func thisMachine() machine {
	return machine{
		CPU: cpuModel(contents("/proc/cpuinfo")), Cores: runtime.NumCPU(), Go: runtime.Version(),
		Kernel: release(contents("/proc/sys/kernel/osrelease")),
		Load:   firstField(contents("/proc/loadavg")),
	}
}

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

// release is the version of a kernel without the name of the build, which says nothing to others.
func release(osrelease string) string {
	version, _, _ := strings.Cut(strings.TrimSpace(osrelease), "-")
	return version
}

// cpuModel finds the first processor's name in the text of /proc/cpuinfo.
func cpuModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
