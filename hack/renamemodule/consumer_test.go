package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// consumer is a module elsewhere: an operator's tests, which use ours from a copy on disk. Its requirements are those of examples/envtest. It imports no
// envtest, which controller-runtime v0.25.2 has two functions of one name in for Windows.
const consumer = `// Package operator is tested with kcmtest.
package operator

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/kcmtest"
)

// Start starts what a test of the operator needs beside an API server.
func Start(t *testing.T, cfg *rest.Config) client.Client {
	kcmtest.Start(t, cfg, kcmtest.PodsReady())
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
`

// controllerRuntime is required by consumers anyway.
const controllerRuntime = "sigs.k8s.io/controller-runtime"

func newConsumer(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := copyOfModule(t, filepath.Join(root, "examples", "envtest"))
	if err := os.WriteFile(filepath.Join(dir, "operator.go"), []byte(consumer), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, nil, "go", "mod", "edit", "-module=example.com/operator", "-replace="+own(t)+"="+root)
	return dir
}

// own is the path of our module, which is another in a fork.
func own(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	return modfile.ModulePath(text)
}

// copyOfModule copies go.mod and go.sum of a module into a new folder.
func copyOfModule(t *testing.T, module string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What an operator's module has to know of when it uses kcmtest, that controller-runtime's own module does not.
func TestModuleGraphOfAConsumer(t *testing.T) {
	const most = 3
	dir := newConsumer(t)
	var found struct{ Dir string }
	if err := json.Unmarshal([]byte(run(t, dir, alone, "go", "mod", "download", "-json", controllerRuntime)), &found); err != nil {
		t.Fatal(err)
	}
	theirs := copyOfModule(t, found.Dir)
	known := map[string]bool{}
	for _, module := range graph(t, theirs) {
		known[module] = true
	}
	all := graph(t, dir)
	more := slices.DeleteFunc(slices.Clone(all), func(module string) bool { return known[module] })
	t.Logf("controller-runtime's module graph has %d modules, that of a consumer %d, and of these %d are not in the first: %v", len(known), len(all), len(more), more)
	if len(more) > most {
		t.Errorf("%d modules more, want at most %d", len(more), most)
	}
}

// graph lists the modules that the module in dir has to know of, itself not included.
func graph(t *testing.T, dir string) []string {
	t.Helper()
	lines := run(t, dir, alone, "go", "list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all")
	return slices.DeleteFunc(strings.Fields(lines), func(word string) bool { return word == controllerRuntime })
}

// alone is the environment of a module that is in no workspace.
var alone = []string{"GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0"}

// kcmtest can be used on these systems. To compile everything for them takes minutes, and is done with LONG=1. Else types are checked: all that
// is imported for a system exists, and our own packages fit to it.
func TestConsumersBuildOnTheirSystems(t *testing.T) {
	dir := newConsumer(t)
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			env := append(slices.Clone(alone), "GOOS="+system, "GOARCH=amd64")
			if os.Getenv("LONG") != "" {
				run(t, dir, env, "go", "build", "./...")
				return
			}
			ours, all := checkTypes(t, dir, env)
			t.Logf("%d packages of ours, %d in all", ours, all)
		})
	}
}

// listed is a package as `go list` prints it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Path string }
}

// checkTypes type-checks the packages of a module and what they import. Of packages that are not ours, what functions do is left out.
func checkTypes(t *testing.T, dir string, env []string) (ours, all int) {
	t.Helper()
	list := json.NewDecoder(strings.NewReader(run(t, dir, env, "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")))
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	for {
		var p listed
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		mine := p.Module != nil && (p.Module.Path == own(t) || p.Module.Path == "example.com/operator")
		files := token.NewFileSet()
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		check := types.Config{
			IgnoreFuncBodies: !mine, Sizes: types.SizesFor("gc", "amd64"),
			Importer: importerFunc(func(path string) (*types.Package, error) {
				if mapped, ok := p.ImportMap[path]; ok {
					path = mapped
				}
				if found, ok := checked[path]; ok {
					return found, nil
				}
				return nil, errors.New("it was not listed before")
			}),
		}
		pkg, err := check.Check(p.ImportPath, files, parsed, nil)
		if err != nil {
			t.Fatalf("%s: %v", p.ImportPath, err)
		}
		checked[p.ImportPath] = pkg
		if mine {
			ours++
		}
	}
	if ours == 0 {
		t.Errorf("none of %d packages is ours: %v", len(checked), slices.Sorted(maps.Keys(checked)))
	}
	return ours, len(checked)
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
