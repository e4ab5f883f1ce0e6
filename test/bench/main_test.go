package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), []string{"-list"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); got != len(scenarios) {
		t.Errorf("-list has %d lines, want one for each of the %d scenarios", got, len(scenarios))
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-runs=0"}, {"-runs=many"}, {"extra"}, {"-scenarios=cows"}, {"-ours=/no/such/program"}} {
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("run(%q) succeeded, want an error", args)
		}
	}
}

func TestManagerArgs(t *testing.T) {
	for c, want := range map[*contestant]bool{&ours: false, &upstream: true} {
		args := strings.Join(managerArgs(*c, "file", "a,b", 1234), " ")
		if got := strings.Contains(args, "--use-service-account-credentials=false"); got != want {
			t.Errorf("%s: %s: credentials flag %v, want %v: it is upstream's only", c.name, args, got, want)
		}
		if !strings.Contains(args, "--controllers=a,b ") || !strings.Contains(args, "--secure-port=1234") {
			t.Errorf("%s: %s, want the controllers and the port", c.name, args)
		}
	}
	zero := managerArgs(oursZeroGrace, "file", "a", 1)
	if last := zero[len(zero)-1]; last != "--namespace-deletion-grace-period=0s" {
		t.Errorf("last flag is %s, want the contestant's own, which so prevails", last)
	}
}
