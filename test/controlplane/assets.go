package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// assetsEnv overrides the folder with the control plane's binaries, as it does for envtest.
const assetsEnv = "KUBEBUILDER_ASSETS"

// Binary returns the path of a control plane program such as kube-apiserver. etcd and kube-apiserver come from
// KUBEBUILDER_ASSETS if that is set; other programs, which such a folder seldom has, come from there or from bin/. The
// error says how to get what is missing.
func Binary(name string) (string, error) {
	if dir := os.Getenv(assetsEnv); dir != "" {
		path := filepath.Join(dir, name)
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if name == "etcd" || name == "kube-apiserver" {
			return "", fmt.Errorf("find %s in %s: %w (unset it to use what `make controlplane` builds)", name, assetsEnv, err)
		}
	}
	root, err := repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s: %w (build it with %s)", name, err, advice(name))
	}
	return path, nil
}

func advice(name string) string {
	switch name {
	case "etcd", "kube-apiserver":
		return "`make controlplane`; that takes some minutes once"
	default:
		return "`make bin/" + name + "`"
	}
}

// repository returns the folder of our go.mod. A test runs in its package's folder, a program anywhere in the tree, and
// a build with -trimpath does not know its source file, so the working directory is asked before the source file.
func repository() (string, error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if isRepository(dir) {
				return dir, nil
			}
		}
	}
	return "", errors.New("find the repository: no folder above has both go.mod and test/controlplane")
}

func isRepository(dir string) bool {
	for _, name := range []string{"go.mod", "test/controlplane/assets.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
