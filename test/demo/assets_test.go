package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestGivenAssetsAreOfOurVersion(t *testing.T) {
	for prints, want := range map[string]string{
		"Kubernetes v1.37.1":  "",
		"Kubernetes v1.37.12": "",
		"Kubernetes v1.33.2":  "its kube-apiserver is v1.33.2, and this repository is for v1.37",
		"Kubernetes v1.3.7":   "its kube-apiserver is v1.3.7, and",
		"hello":               "its kube-apiserver is none that tells its version",
	} {
		dir := t.TempDir()
		for _, name := range []string{"etcd", "kube-apiserver"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+prints+"'\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.CommandContext(t.Context(), "../../hack/check-assets.sh", dir, "v1.37.1").CombinedOutput()
		if got := string(out); (err == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: error %v, output %q; want %q in it", prints, err, got, want)
		}
	}
}
