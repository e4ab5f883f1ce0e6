package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

func TestTextsAreRenamed(t *testing.T) {
	r, err := newRenamer("mini", "example.com/a/mini", []string{"go.mod", "cmd/x/main.go", "pkg/a/a.go", "test/go.mod"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file, before, want string
	}{
		{"a module of its own", "go.mod", "module mini\n\ngo 1.26.0\n", "module example.com/a/mini\n\ngo 1.26.0\n"},
		{
			"one that requires another", "test/go.mod",
			"// Why.\nmodule mini/test\n\nrequire (\n\texample.com/minimal v1.0.0\n\tmini v0.0.0 // ours\n\tmini/other v0.0.0\n)\n\nreplace mini => ..\n\nreplace mini/other v0.0.0 => ../other\n",
			"// Why.\nmodule example.com/a/mini/test\n\nrequire (\n\texample.com/minimal v1.0.0\n\texample.com/a/mini v0.0.0 // ours\n\texample.com/a/mini/other v0.0.0\n)\n\nreplace example.com/a/mini => ..\n\nreplace example.com/a/mini/other v0.0.0 => ../other\n",
		},
		{"somebody else's", "hack/x/go.mod", "module minimal\n", "module minimal\n"},
		{
			"imports, in order again", "pkg/a/a.go",
			"package a\n\nimport (\n\t\"github.com/x/y\"\n\tb \"mini/pkg/b\"\n\t_ \"mini\"\n\t\"minimal/pkg/b\"\n)\n",
			"package a\n\nimport (\n\t_ \"example.com/a/mini\"\n\tb \"example.com/a/mini/pkg/b\"\n\t\"github.com/x/y\"\n\t\"minimal/pkg/b\"\n)\n",
		},
		{
			"comments and strings of Go files", "pkg/a/a.go",
			"package a\n\n// See mini/pkg/b, not mini/other or gemini/pkg/b.\nconst Program = `mini/pkg/(b|c)\\.` // mini/cmd/x\n\nconst Kind = \"mini.kind\"\n",
			"package a\n\n// See example.com/a/mini/pkg/b, not mini/other or gemini/pkg/b.\nconst Program = `example.com/a/mini/pkg/(b|c)\\.` // example.com/a/mini/cmd/x\n\nconst Kind = \"mini.kind\"\n",
		},
		{
			"pages", "README.md",
			"# mini\n\nmini/pkg/a\n`mini/cmd/x`, /etc/mini/pkg, ./mini/pkg, mini/pkgs, mini-pkg/a\n",
			"# mini\n\nexample.com/a/mini/pkg/a\n`example.com/a/mini/cmd/x`, /etc/mini/pkg, ./mini/pkg, mini/pkgs, mini-pkg/a\n",
		},
		{
			"commands of pages", "README.md",
			"go mod edit -require=mini@v0.0.0 -replace=mini=../mini && go mod edit -replace=mini/pkg=../mini/pkg -replace=gemini=../mini; kubectl get -l mini=x\n",
			"go mod edit -require=example.com/a/mini@v0.0.0 -replace=example.com/a/mini=../mini && go mod edit -replace=example.com/a/mini/pkg=../mini/pkg -replace=gemini=../mini; kubectl get -l mini=x\n",
		},
		{"sums", "go.sum", "mini/test v0.0.0 h1:x\n", "mini/test v0.0.0 h1:x\n"},
		{"what is not text", "logo.png", "\x00 mini/pkg/a", "\x00 mini/pkg/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.file(tt.file, []byte(tt.before))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

func TestPathsThatCannotBeFetchedAreRefused(t *testing.T) {
	for _, path := range []string{"", "minikcm", "/minikcm", "example.com/Mini kcm", "example.com/minikcm/v2", "gopkg.in/minikcm.v1"} {
		dir := t.TempDir()
		goMod := filepath.Join(dir, "go.mod")
		if err := os.WriteFile(goMod, []byte("module minikcm\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := rename(dir, path); err == nil {
			t.Errorf("%q was accepted", path)
		}
		if text, err := os.ReadFile(goMod); err != nil || string(text) != "module minikcm\n" {
			t.Errorf("%q: go.mod is %q (%v), want it as it was", path, text, err)
		}
	}
}

func TestAFolderThatIsNoRepository(t *testing.T) {
	t.Setenv("LC_ALL", "C") // git's language
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module minikcm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rename(dir, fetched); err == nil || !strings.Contains(err.Error(), "not a git repository") {
		t.Errorf("%v, want what git says", err)
	}
}

// What the copy is called in the tests below.
const (
	fetched = "example.org/fleet/minikcm"
	version = "v0.1.0"
)

// Packages of the fetched module whose unit tests another module runs. With LONG=1 it runs those of all packages.
var tested = []string{"/pkg/answer", "/pkg/controller", "/pkg/leadership"}

// A copy of the repository gets a path with a host in it, again and again.
func TestACopyIsRenamed(t *testing.T) {
	copied := renamedCopy(t)
	if again, err := rename(copied, fetched); err != nil || again != 0 {
		t.Errorf("a second time changed %d files (%v), want none", again, err)
	}
	late := filepath.Join(copied, "pkg", "late.go") // comes with a merge
	if err := os.WriteFile(late, []byte("package pkg\n\nimport _ \""+original+"/pkg/answer\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := rename(copied, fetched); err != nil || again != 1 {
		t.Errorf("after a merge %d files changed (%v), want the one that came with it", again, err)
	}
	nothingIsLeft(t, copied)
}

// A renamed copy builds, its other modules find what they import, and its own tests of renaming pass. A module elsewhere that knows nothing but a module
// proxy fetches it and runs its unit tests.
func TestARenamedCopyIsFetchedByAnotherModule(t *testing.T) {
	copied := renamedCopy(t)
	run(t, copied, []string{"GOWORK=off", "GOFLAGS=-trimpath", "CGO_ENABLED=0"}, "go", "build", "./...") // as below, so that most is compiled once
	for _, dir := range workspace(t, copied) {
		run(t, filepath.Join(copied, dir), []string{"GOPROXY=off"}, "go", "list", "-deps", "-test", "./...")
	}
	run(t, filepath.Join(copied, "hack", "renamemodule"), []string{"GOWORK=off"}, "go", "test", "-run", "Renamed$|Refused|OfAConsumer", ".")

	consumer := t.TempDir()
	goMod := fmt.Sprintf("module example.com/consumer\n\ngo 1.26.0\n\nrequire %s %s\n", fetched, version)
	if err := os.WriteFile(filepath.Join(consumer, "go.mod"), []byte(goMod), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"GOWORK=off", "GOPROXY=file://" + proxy(t, copied) + ",file://" + moduleCache(t) + "/cache/download", "GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=none",
		"GOMODCACHE=" + t.TempDir(), "GOFLAGS=-mod=mod -modcacherw -trimpath", "CGO_ENABLED=0",
	}
	packages := []string{}
	for _, p := range tested {
		packages = append(packages, fetched+p)
	}
	if os.Getenv("LONG") != "" {
		packages = []string{fetched + "/pkg/..."}
	}
	t.Log(strings.TrimSpace(run(t, consumer, env, "go", append([]string{"test"}, packages...)...)))
}

func renamedCopy(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := copyOf(t, root)
	changed, err := rename(dir, fetched)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files changed", changed)
	return dir
}

// copyOf copies what git knows, and would know, of the repository into a new one.
func copyOf(t *testing.T, root string) string {
	t.Helper()
	files, err := tracked(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range files {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		info, err := os.Stat(from)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, nil, "git", "init", "--quiet")
	return dir
}

// nothingIsLeft fails for every go.mod and every import with the old path.
func nothingIsLeft(t *testing.T, dir string) {
	t.Helper()
	old := func(path string) bool { return path == "minikcm" || strings.HasPrefix(path, "minikcm/") }
	files, err := tracked(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case filepath.Base(name) == "go.mod":
			f, err := modfile.Parse(name, text, nil)
			if err != nil {
				t.Fatal(err)
			}
			paths := []string{f.Module.Mod.Path}
			for _, m := range f.Require {
				paths = append(paths, m.Mod.Path)
			}
			for _, m := range f.Replace {
				paths = append(paths, m.Old.Path)
			}
			for _, path := range paths {
				if old(path) {
					t.Errorf("%s still names %s", name, path)
				}
			}
		case filepath.Ext(name) == ".go":
			f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range imports(t, f) {
				if old(path) {
					t.Errorf("%s still imports %s", name, path)
				}
			}
		}
	}
}

func imports(t *testing.T, f *ast.File) []string {
	t.Helper()
	var paths []string
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// workspace returns the folders of the modules in go.work.
func workspace(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, use := range work.Use {
		dirs = append(dirs, use.Path)
	}
	return dirs
}

// proxy makes a module proxy of files that has the module in dir, in one version.
func proxy(t *testing.T, dir string) string {
	t.Helper()
	proxy := t.TempDir()
	escaped, err := module.EscapePath(fetched)
	if err != nil {
		t.Fatal(err)
	}
	versions := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := modzip.CreateFromDir(&packed, module.Version{Path: fetched, Version: version}, dir); err != nil {
		t.Fatal(err)
	}
	if z, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len())); err != nil {
		t.Fatal(err)
	} else {
		t.Logf("the module is %d KiB, %d files", packed.Len()>>10, len(z.File))
	}
	for name, text := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(`{"Version":"` + version + `"}`), version + ".mod": goMod, version + ".zip": packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), text, fs.FileMode(0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return proxy
}

func moduleCache(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(run(t, ".", nil, "go", "env", "GOMODCACHE"))
}

// run returns what a command prints, without what it tells of downloads and the like, and ends the test if it fails.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var aside bytes.Buffer
	cmd.Stderr = &aside
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, &aside)
	}
	return string(out)
}
