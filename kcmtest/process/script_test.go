//go:build unix

package process

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A wrapper script adds a flag, or runs the program in a container. The program is then a child of the script.
func TestProgramBehindAScriptIsStopped(t *testing.T) {
	for _, tt := range []struct {
		name, program, said string
		patience            time.Duration
	}{
		{"if it ends when it is asked to", `trap "echo asked >&3; exit 0" TERM; echo "\"Term begins\"" >&2; while :; do sleep 0.05; done`, "asked\n", time.Minute},
		{"if it does not", `trap "" TERM; echo "\"Term begins\"" >&2; while :; do sleep 0.05; done`, "", 100 * time.Millisecond},
		{"if it does not, and has no log", `trap "" TERM; echo "\"Term begins\"" >&2; exec 2>&-; while :; do sleep 0.05; done`, "", 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pipe := filepath.Join(t.TempDir(), "pipe")
			must(t, syscall.Mkfifo(pipe, 0o600))
			var said *os.File
			f, binary := &fakeT{}, program(t, "sh -c 'exec 3>"+pipe+"; "+tt.program+"'\n: # so that the shell stays")
			f.run(func() {
				opened := make(chan error, 1)
				go func() {
					var err error
					said, err = os.Open(pipe)
					opened <- err
				}()
				Start(f, nil, Binary(binary), func(s *settings) { s.patience = tt.patience })
				if err := <-opened; err != nil {
					t.Error(err)
				}
			})
			defer func() { _ = said.Close() }()
			text, err := io.ReadAll(said) // until the program closes the other end
			if err != nil || string(text) != tt.said {
				t.Errorf("the program said %q (%v), want %q", text, err, tt.said)
			}
			if f.fatal != "" || len(f.errors) > 0 {
				t.Errorf("told %q and %q", f.fatal, f.errors)
			}
		})
	}
}
