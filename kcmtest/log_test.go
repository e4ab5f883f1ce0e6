package kcmtest

import (
	"path"
	"runtime"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/logr/testr"

	"minikcm/internal/fakeapi"
)

func TestLogLinesNameTheirWriter(t *testing.T) {
	for name, sink := range map[string]func(told func(string)) logr.Logger{
		"by the depth of the call": func(told func(string)) logr.Logger {
			return funcr.New(func(_, args string) { told(args) }, funcr.Options{LogCaller: funcr.All})
		},
		"by helpers": func(told func(string)) logr.Logger {
			return testr.NewWithInterface(&helped{told: told, helpers: map[string]bool{}}, testr.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			log, silence := endableLogger(sink(func(line string) { lines = append(lines, line) }))
			log.Info("One")
			log.WithName("a").WithValues("b", "c").Error(nil, "Another")
			func() { log.WithCallDepth(1).Info("With call depth") }()
			silence()
			log.Info("Too late")
			fakeapi.Want(t, "logged lines", len(lines), 3)
			for _, line := range lines {
				fakeapi.WantPart(t, "line", line, "log_test.go")
			}
		})
	}
}

// helped records the caller of each line, as *testing.T does.
type helped struct {
	told    func(string)
	helpers map[string]bool
}

func (h *helped) Helper() {
	pc, _, _, _ := runtime.Caller(1)
	h.helpers[runtime.FuncForPC(pc).Name()] = true
}

func (h *helped) Log(...any) {
	for skip := 1; ; skip++ {
		pc, file, _, ok := runtime.Caller(skip)
		if !ok || !h.helpers[runtime.FuncForPC(pc).Name()] {
			h.told(path.Base(file))
			return
		}
	}
}
