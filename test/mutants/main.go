// Command mutants breaks the code in the ways that test/mutants.txt lists, one at a time, and runs the tests that
// have to notice.
// It works on copies: no file of the repository changes. Arguments select the entries whose text contains all of them.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const list = "test/mutants.txt"

// mutant is one entry: in file, old becomes new, and then a test of pkg that matches run fails.
type mutant struct {
	text                                   string
	name, file, old, replacement, pkg, run string
	broken                                 []byte // content of file with the change
}

func main() {
	if err := runAll(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runAll(words []string) error {
	mutants, err := readMutants()
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool {
		return slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(m.text, word) })
	})
	if len(mutants) == 0 {
		return fmt.Errorf("%s has no entry with %q", list, words)
	}
	tests := map[string][]string{}
	for _, m := range mutants {
		tests[m.pkg] = append(tests[m.pkg], m.run)
	}
	for pkg, runs := range tests {
		if output, err := exec.Command("go", "test", "-run", strings.Join(runs, "|"), pkg).CombinedOutput(); err != nil {
			return fmt.Errorf("%s fails without a mutant:\n%s", pkg, output)
		}
	}
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	survivors := 0
	for _, m := range mutants {
		begun := time.Now()
		result, err := m.try(folder)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if result != "caught" {
			survivors++
		}
		fmt.Printf("%-8s %4.0fs  %s\n", result, time.Since(begun).Seconds(), m.name)
	}
	if survivors > 0 {
		return fmt.Errorf("%d of %d mutants were not caught", survivors, len(mutants))
	}
	return nil
}

// readMutants returns the entries of the list. It fails if one of them does not apply.
func readMutants() ([]mutant, error) {
	content, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	var mutants []mutant
	var errs []error
	for entry := range strings.SplitSeq(string(content), "\n\n") {
		m := mutant{text: entry}
		fields := map[string]*string{"mutant": &m.name, "file": &m.file, "old": &m.old, "new": &m.replacement, "package": &m.pkg, "tests": &m.run}
		for line := range strings.Lines(entry) {
			key, value, _ := strings.Cut(line, ":")
			if field := fields[key]; field != nil {
				*field = strings.TrimSpace(value)
			} else if strings.TrimSpace(line) != "" && line[0] != '#' {
				errs = append(errs, fmt.Errorf("%s: unknown line %q", list, line))
			}
		}
		if m.name == "" {
			continue // comments
		}
		code, err := os.ReadFile(m.file)
		if n := strings.Count(string(code), m.old); err != nil || n != 1 || m.old == "" || m.pkg == "" || m.run == "" {
			errs = append(errs, errors.Join(fmt.Errorf("%s: %q: %s has the old text %d times, not once, or the entry is incomplete", list, m.name, m.file, n), err))
		}
		m.broken = []byte(strings.Replace(string(code), m.old, m.replacement, 1))
		mutants = append(mutants, m)
	}
	return mutants, errors.Join(errs...)
}

// try runs the tests with the change, several times, because some failures depend on the order of goroutines. Only a
// test that fails catches a mutant: the code has to compile.
func (m mutant) try(folder string) (string, error) {
	file, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	broken, overlay := filepath.Join(folder, "broken.go"), filepath.Join(folder, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
	if err := errors.Join(err, os.WriteFile(broken, m.broken, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	output, err := exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-failfast", "-count=3", "-timeout", "2m", "-run", m.run, m.pkg).CombinedOutput()
	switch text := string(output); {
	case strings.Contains(text, "[build failed]"), strings.Contains(text, "[setup failed]"):
		fmt.Print(text)
		return "INVALID", nil
	case err == nil:
		return "SURVIVED", nil
	}
	return "caught", nil
}
