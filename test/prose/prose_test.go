// Package prose searches comments, log texts and pages for the words of words.txt.
package prose

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

//go:embed words.txt
var wordsFile string

// TestProse fails for a package or page that uses one of the words.
func TestProse(t *testing.T) {
	entries := regexp.MustCompile("(?m)^[^#\n].*")
	words := regexp.MustCompile("(?im)" + strings.ReplaceAll(strings.Join(entries.FindAllString(wordsFile, -1), "|"), " ", `\s+`))
	inlineCode := regexp.MustCompile("`[^`\n]*`")
	found := map[string][]string{}
	search := func(unit, file string, line int, text string) {
		for _, at := range words.FindAllStringIndex(text, -1) {
			found[unit] = append(found[unit], fmt.Sprintf("%s:%d: %q", file, line+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]]))
		}
	}
	err := fs.WalkDir(os.DirFS("../.."), ".", func(file string, entry fs.DirEntry, err error) error {
		if name := entry.Name(); err == nil && entry.IsDir() && (name == "bin" || name == "testdata" || len(name) > 1 && name[0] == '.') {
			return fs.SkipDir
		}
		if ext := filepath.Ext(file); err != nil || ext != ".md" && ext != ".go" {
			return err
		}
		content, err := os.ReadFile("../../" + file)
		if err != nil || strings.HasSuffix(file, ".md") {
			search(file, file, 1, inlineCode.ReplaceAllString(string(content), ""))
			return err
		}
		unit := filepath.ToSlash(filepath.Dir(file)) + strings.Repeat(" tests", strings.Count(file, "_test.go"))
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, content, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, comment := range parsed.Comments {
			search(unit, file, files.Position(comment.Pos()).Line, comment.Text())
		}
		for node := range ast.Preorder(parsed) {
			call, _ := node.(*ast.CallExpr)
			if call == nil {
				continue
			}
			method, _ := call.Fun.(*ast.SelectorExpr)
			if method == nil || !slices.Contains([]string{"Info", "InfoS", "Error", "ErrorS"}, method.Sel.Name) {
				continue
			}
			for _, arg := range call.Args {
				if text, ok := arg.(*ast.BasicLit); ok {
					search(unit, file, files.Position(text.Pos()).Line, strings.Trim(text.Value, "\"`"))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for unit, findings := range found {
		t.Errorf("%s uses words that words.txt forbids:\n\t%s", unit, strings.Join(findings, "\n\t"))
	}
}
