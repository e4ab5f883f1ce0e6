package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// original is the path of the module in the repository that copies are made of.
const original = "minikcm"

// rename gives the module in dir, and those below it, a path that begins with to, and returns how many files it changed. Every file is
// read and worked out before the first is written, so an error leaves all as they were, unless it is one of writing.
func rename(dir, to string) (changed int, err error) {
	if err := module.CheckPath(to); err != nil {
		return 0, err
	}
	if _, major, _ := module.SplitPathVersion(to); major != "" {
		return 0, fmt.Errorf("%s: the versions of this module begin with v0, so its path cannot end with %s", to, major)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return 0, err
	}
	from := modfile.ModulePath(text)
	switch from {
	case "":
		return 0, errors.New("go.mod does not name a module")
	case to: // after a merge: what came with it has the old path
		from = original
	}
	files, err := tracked(dir)
	if err != nil {
		return 0, err
	}
	r, err := newRenamer(from, to, files)
	if err != nil {
		return 0, err
	}
	written := map[string][]byte{}
	for _, name := range files {
		before, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) { // deleted, and git was not told
			continue
		}
		if err != nil {
			return 0, err
		}
		after, err := r.file(name, before)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if !bytes.Equal(before, after) {
			written[name] = after
		}
	}
	for name, after := range written {
		if err := overwrite(filepath.Join(dir, name), after); err != nil {
			return 0, err
		}
	}
	return len(written), nil
}

// tracked returns the files of the repository in dir, with slashes, and those that git would add.
func tracked(dir string) ([]string, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = dir
	out, err := list.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("list the files of the repository: %w: %s", err, bytes.TrimSpace(failed.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("list the files of the repository: %w", err)
	}
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	slices.Sort(files)
	return slices.Compact(files), nil
}

func overwrite(name string, text []byte) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, info.Mode().Perm())
}

// renamer knows both paths.
type renamer struct {
	from, to string
	inText   *regexp.Regexp // from, where text names a package or a module by it
}

// newRenamer takes the files of the repository with slashes. Where text names what lies below the module, it begins with one of the
// repository's folders; where it names the module itself, a version follows or, in commands, the folder that replaces it. The module's name alone, or before
// something else, is the name of the project and stays.
func newRenamer(from, to string, files []string) (renamer, error) {
	var folders []string
	for _, name := range files {
		if folder, _, deep := strings.Cut(name, "/"); deep && !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	if len(folders) == 0 {
		return renamer{}, errors.New("the repository has no folders")
	}
	for i, folder := range folders {
		folders[i] = regexp.QuoteMeta(folder)
	}
	inText, err := regexp.Compile(`(^|[^\w./-])` + regexp.QuoteMeta(from) + `(/(?:` + strings.Join(folders, "|") + `)\b|@v|=\.\./)`)
	return renamer{from: from, to: to, inText: inText}, err
}

// path is what a module or package is called after the renaming.
func (r renamer) path(old string) string {
	if rest, ok := strings.CutPrefix(old, r.from); ok && (rest == "" || rest[0] == '/') {
		return r.to + rest
	}
	return old
}

// file is the text of a file after the renaming.
func (r renamer) file(name string, text []byte) ([]byte, error) {
	switch {
	case path.Base(name) == "go.mod":
		return r.goMod(name, text)
	case path.Base(name) == "go.sum" || bytes.IndexByte(text, 0) >= 0:
		return text, nil // sums know only modules from elsewhere; and what is not text names nothing
	case path.Ext(name) == ".go":
		return r.goFile(name, text)
	}
	return r.text(text), nil
}

func (r renamer) text(text []byte) []byte {
	return r.inText.ReplaceAll(text, []byte("${1}"+strings.ReplaceAll(r.to, "$", "$$")+"${2}"))
}

// goMod renames the module itself and what it requires, replaces or excludes.
func (r renamer) goMod(name string, text []byte) ([]byte, error) {
	f, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	if f.Module == nil {
		return text, nil
	}
	if own := r.path(f.Module.Mod.Path); own != f.Module.Mod.Path {
		if err := f.AddModuleStmt(own); err != nil {
			return nil, err
		}
	}
	for _, line := range requirements(f) {
		for i, token := range line.Token {
			line.Token[i] = r.path(token)
		}
	}
	f.Cleanup()
	return modfile.Format(f.Syntax), nil
}

// requirements are the lines of f that name other modules.
func requirements(f *modfile.File) []*modfile.Line {
	var lines []*modfile.Line
	for _, m := range f.Require {
		lines = append(lines, m.Syntax)
	}
	for _, m := range f.Replace {
		lines = append(lines, m.Syntax)
	}
	for _, m := range f.Exclude {
		lines = append(lines, m.Syntax)
	}
	for _, m := range f.Tool {
		lines = append(lines, m.Syntax)
	}
	return lines
}

// goFile renames imports, and paths of packages in comments and strings. Imports are sorted anew.
func (r renamer) goFile(name string, text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var edits []edit
	at := func(from, to token.Pos) []byte { return text[fset.Position(from).Offset:fset.Position(to).Offset] }
	change := func(from, to token.Pos, after []byte) {
		if !bytes.Equal(at(from, to), after) {
			edits = append(edits, edit{fset.Position(from).Offset, fset.Position(to).Offset, after})
		}
	}
	imports := map[*ast.BasicLit]bool{}
	for _, spec := range f.Imports {
		imports[spec.Path] = true
		old, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if now := r.path(old); now != old {
			change(spec.Path.Pos(), spec.Path.End(), []byte(strconv.Quote(now)))
		}
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			change(c.Pos(), c.End(), r.text(at(c.Pos(), c.End())))
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !imports[lit] {
			change(lit.Pos(), lit.End(), r.text(at(lit.Pos(), lit.End())))
		}
		return true
	})
	if len(edits) == 0 {
		return text, nil
	}
	return format.Source(apply(text, edits))
}

// edit replaces a part of a text.
type edit struct {
	from, to int
	with     []byte
}

// apply makes edits that do not overlap.
func apply(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out bytes.Buffer
	last := 0
	for _, e := range edits {
		out.Write(text[last:e.from])
		out.Write(e.with)
		last = e.to
	}
	out.Write(text[last:])
	return out.Bytes()
}
