package main

import (
	"errors"
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	const rest = " S 7 8 9 0 -1 4194560 1000 0 5 0 150 25 0 0 20 0 11 0 4242 1300000000 9000 18446744073709551615"
	for _, text := range []string{"42 (etcd)" + rest, "42 (a) S 1 (b)" + rest} {
		if got, err := parseStat(text); err != nil || got != 1.75 {
			t.Errorf("parseStat(%q) = %v, %v, want 1.75: user and system time", text, got, err)
		}
	}
	for _, text := range []string{"", "42 (etcd) S 7"} {
		if got, err := parseStat(text); err == nil {
			t.Errorf("parseStat(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseStatus(t *testing.T) {
	const text = "Name:\tetcd\nVmPeak:\t 2000000 kB\nVmHWM:\t   40960 kB\nVmRSS:\t   36864 kB\nRssAnon:\t   20480 kB\n"
	got, err := parseStatus(text)
	if want := (memory{resident: 36, peak: 40}); err != nil || got != want {
		t.Errorf("parseStatus = %+v, %v, want %+v", got, err, want)
	}
	if _, err := parseStatus("Name:\tetcd\nState:\tZ (zombie)\n"); !errors.Is(err, errNoProcess) {
		t.Errorf("parseStatus of a process that has ended: %v, want %v", err, errNoProcess)
	}
}

func TestOwnProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	if _, err := cpuSeconds(os.Getpid()); err != nil {
		t.Error(err)
	}
	m, err := memoryOf(os.Getpid())
	if err != nil || m.resident < 1 || m.peak < m.resident {
		t.Errorf("memoryOf this process = %+v, %v, want MiB, and the peak no less than now", m, err)
	}
}

func TestAttemptFails(t *testing.T) {
	text := "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm ActiveOpens PassiveOpens AttemptFails\nTcp: 1 20 3 17\nUdp: InDatagrams\nUdp: 4\n"
	if got, err := attemptFails(text); got != 17 || err != nil {
		t.Errorf("attemptFails = %d, %v, want 17", got, err)
	}
	if _, err := attemptFails("Tcp: RtoAlgorithm\nTcp: 1\n"); err == nil {
		t.Error("attemptFails succeeded without the counter")
	}
}
