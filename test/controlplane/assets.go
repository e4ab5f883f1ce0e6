package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

const assetsEnv = "KUBEBUILDER_ASSETS"

// Binary returns the path of a control plane program such as kube-apiserver. etcd and kube-apiserver come from
// KUBEBUILDER_ASSETS if set. Other programs come from there or from bin/.
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
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s: %w (build it with %s)", name, err, buildAdvice(name))
	}
	return path, nil
}

func buildAdvice(name string) string {
	switch name {
	case "etcd", "kube-apiserver":
		return "`make controlplane`; that takes some minutes once"
	default:
		return "`make bin/" + name + "`"
	}
}

// repositoryRoot returns the folder of our go.mod. A build with -trimpath does not know the source file, so the working
// directory is tried first.
func repositoryRoot() (string, error) {
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
