package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestGivenAssetsAreOfOurVersion(t *testing.T) {
	for _, tt := range []struct {
		name, prints string
		want         string
	}{
		{"ours", "Kubernetes v1.37.1", ""},
		{"another patch release", "Kubernetes v1.37.12", ""},
		{"an older one", "Kubernetes v1.33.2", "its kube-apiserver is v1.33.2, and this repository is for v1.37"},
		{"one with the same beginning", "Kubernetes v1.3.7", "its kube-apiserver is v1.3.7, and"},
		{"something else", "hello", "its kube-apiserver is none that tells its version"},
		{"nothing", "", "it has no kube-apiserver"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			program(t, dir, "etcd", "etcd Version: 3.7.3")
			if tt.prints != "" {
				program(t, dir, "kube-apiserver", tt.prints)
			}
			out, err := exec.CommandContext(t.Context(), "../../hack/check-assets.sh", dir, "v1.37.1").CombinedOutput()
			if got := string(out); (err == nil) != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("error %v, output %q; want %q in it", err, got, tt.want)
			}
		})
	}
}

// program writes a program that prints a line.
func program(t *testing.T, dir, name, line string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+line+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
