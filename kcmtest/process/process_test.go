package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func patient(s *settings) { s.patience = time.Minute }

// must ends the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program writes a shell script in the place of the program.
func program(t *testing.T, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "controller-manager")
	must(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700))
	return file
}

func TestProgramIsStoppedWhenTheTestEnds(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	script := `trap 'echo asked >` + asked + `; exit 0' TERM
echo "$@" >&2
for a in "$@"; do case $a in --kubeconfig=*) cat "${a#--kubeconfig=}" >&2;; esac; done
echo 'I1122 15:00:00.000000 1 term.go:80] "Term begins" term=1' >&2
while :; do sleep 0.05; done`
	var log strings.Builder
	f, binary := &fakeT{}, program(t, script)
	f.run(func() {
		Start(f, []byte("the kubeconfig\n"), Binary(binary), Controllers("a", "b"), NamespaceGrace(time.Second), Log(&log), patient)
	})
	if f.fatal != "" || len(f.errors) > 0 {
		t.Errorf("told %q and %q", f.fatal, f.errors)
	}
	for _, want := range []string{"--controllers=a,b ", "--namespace-deletion-grace-period=1s", "--leader-elect=false", "--secure-port=0", "the kubeconfig\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
	if _, err := os.Stat(asked); err != nil {
		t.Errorf("the program was not asked to end: %v", err)
	}
}

func TestStartFailsTheTestOnErrors(t *testing.T) {
	t.Setenv(binaryEnv, "")
	for _, tt := range []struct {
		name, script, want string
		option             Option
	}{
		{"no program", "", "no program: give Binary or set KCMTEST_BINARY to the path of controller-manager", nil},
		{"a flag it does not know", "echo 'Error: unknown flag: --x' >&2\nexit 1", "kcmtest: unknown flag: --x: exit status 1", nil},
		{"an error", `echo 'E1123 07:02:49.123456   12345 run.go:72] "command failed" err="user \"x\" is not allowed to: create pods"' >&2
exit 1`, `kcmtest: user "x" is not allowed to: create pods: exit status 1`, nil},
		{"an error of another kind", `echo 'F1123 07:02:49.123456   12345 x.go:1] "Odd" err="x"' >&2
exit 255`, `kcmtest: "Odd" err="x": exit status 255`, nil},
		{"exit status 0", "exit 0", "/controller-manager: exit status 0", nil},
		{"exit status 0 after a line", "echo usage >&2", "kcmtest: usage: exit status 0", nil},
		{"no API server", `echo 'I1122 1 preflight.go:93] "Waiting for the API server" server="s" reason="Post \"https://s\": connection refused"' >&2
while :; do sleep 0.05; done`, `kcmtest: Post "https://s": connection refused`, nil},
		{"no controllers", "exit 1", "kcmtest: Controllers: name at least one, there is nothing to run", Controllers("-namespace")},
		{"a grace that is none", "exit 1", "kcmtest: NamespaceGrace(-1ns): must not be negative", NamespaceGrace(-1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var options []Option
			if tt.script != "" {
				options = append(options, Binary(program(t, tt.script)))
			}
			if tt.option != nil {
				options = append(options, tt.option)
			}
			f := &fakeT{}
			f.run(func() { Start(f, nil, options...) })
			if !strings.Contains(f.fatal, tt.want) || strings.Contains(f.fatal, "\n") || len(f.errors) > 0 {
				t.Errorf("told %q and %q, want one line with %q", f.fatal, f.errors, tt.want)
			}
		})
	}
}

// The first attempt fails before the API server responds. The caches may take longer to fill than serverPatience.
func TestProgramMayWorkLongAfterTheServerIsAvailable(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"slow caches":        "echo '\"API server is available\"' >&2\nsleep 2\necho '\"Term begins\"' >&2",
		"an earlier version": "echo '\"Term begins\"' >&2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, binary := &fakeT{}, program(t, "echo '\"Waiting for the API server\" reason=\"x\"' >&2\nsleep 0.2\n"+script+"\nwhile :; do sleep 0.05; done")
			f.run(func() {
				Start(f, nil, Binary(binary))
				time.Sleep(serverPatience)
			})
			if f.fatal != "" || len(f.errors) > 0 {
				t.Errorf("told %q and %q", f.fatal, f.errors)
			}
		})
	}
}

// AfterSuite runs when BeforeSuite has failed, too.
func TestStopOfAProgramThatWasNeverStarted(t *testing.T) {
	var p *Program
	p.Stop()
}

func TestEndOfTheProgramFailsTheTest(t *testing.T) {
	for script, want := range map[string]string{
		"echo 'Error: a reason' >&2\nexit 3": "the program ended by itself: a reason: exit status 3",
		"echo Stopped >&2":                   "the program ended by itself: Stopped: exit status 0", // stopped by a signal
	} {
		f, binary := &fakeT{}, program(t, "echo '\"Term begins\"' >&2\n"+script)
		f.run(func() {
			p := Start(f, nil, Binary(binary))
			<-p.done
		})
		if f.fatal != "" || len(f.errors) != 1 || !strings.Contains(f.errors[0], want) {
			t.Errorf("told %q and %q, want %q", f.fatal, f.errors, want)
		}
	}
}

func TestLongLineBlocksNothing(t *testing.T) {
	binary := program(t, `trap 'exit 0' TERM
head -c 3000000 /dev/zero | tr '\0' x >&2
echo >&2
echo '"Term begins"' >&2
while :; do sleep 0.05; done`)
	f := &fakeT{}
	var log strings.Builder
	f.run(func() { Start(f, nil, Log(&log), patient, Binary(binary)) })
	if f.fatal != "" || len(f.errors) > 0 || log.Len() < 3_000_000 {
		t.Errorf("told %q and %q, read %d bytes", f.fatal, f.errors, log.Len())
	}
}

// fakeT is a test that may fail.
type fakeT struct {
	lock     sync.Mutex
	fatal    string
	errors   []string
	cleanups []func()
}

func (f *fakeT) Helper() {}

func (f *fakeT) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }

func (f *fakeT) Errorf(format string, args ...any) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fakeT) run(test func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test()
	}()
	<-ended
	for i := range f.cleanups {
		f.cleanups[len(f.cleanups)-1-i]()
	}
}
