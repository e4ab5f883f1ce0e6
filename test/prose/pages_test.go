package prose

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreignNames are the names in pages that belong to other programs or to earlier versions.
var foreignNames = []string{
	"ClusterConfiguration", "controllerManager", "extraArgs", "newName", "newTag", "deploy/FOLDER", "deploy/crd.yaml", "GinkgoWriter", "NewWithOptions", "GetHTTPClient", "readinessGates",
	"apiserver_admission_webhook_admission_duration_seconds", "node_collector_update_all_nodes_health_duration_seconds",
}

// foreignFlags are the flags in pages that belong to kubectl, kubeadm and other programs.
var foreignFlags = []string{
	"cascade", "config", "field-selector", "ignore-not-found", "non-resource-url", "prefix", "raw", "serviceaccount", "tail", "tags", "verb",
	"clusterrole", "for", "timeout",
}

// TestPageNames fails for a name, path, flag, make target or link of a page that does not exist in the repository.
func TestPageNames(t *testing.T) {
	root := os.DirFS("../..")
	word := regexp.MustCompile(`\w+`)
	known, pages := map[string]bool{}, map[string]string{}
	for _, name := range foreignNames {
		known[name] = true
	}
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if name := entry.Name(); err == nil && entry.IsDir() && (name == "bin" || len(name) > 1 && name[0] == '.') {
			return fs.SkipDir
		}
		known[strings.TrimSuffix(path.Base(file), path.Ext(file))] = true
		if err != nil || entry.IsDir() || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		content, err := fs.ReadFile(root, file)
		if path.Ext(file) == ".md" && file != "docs/metrics.md" && file != "CHANGELOG.md" {
			pages[file] = string(content)
			return err
		}
		for _, w := range word.FindAllString(string(content), -1) {
			known[w] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`[A-Za-z0-9]_[A-Za-z0-9]|[a-z]{2}[A-Z]`)
	aPath := regexp.MustCompile(`^(pkg|test|docs|deploy|internal|examples|hack|cmd)/[\w./-]+$`)
	ourFlag := map[string]bool{}
	for _, f := range regexp.MustCompile("`--([a-z0-9-]+)").FindAllStringSubmatch(pages["docs/flags.md"], -1) {
		ourFlag[f[1]] = true
	}
	makefile, err := fs.ReadFile(root, "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	codeBlock := regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	aFlag := regexp.MustCompile(`^--([a-z][a-z0-9-]+)(=.*)?$`)
	aTarget := regexp.MustCompile(`(?m)(?:^|[\x60&])\s*make ([a-z]\S*[a-z])`)
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for page, text := range pages {
		for _, code := range codeBlock.FindAllString(text, -1) {
			for _, w := range word.FindAllString(code, -1) {
				if name.MatchString(w) && !known[strings.Trim(w, "_")] {
					t.Errorf("%s: %s is not in the code", page, w)
				}
			}
			for _, w := range strings.Fields(strings.Trim(code, "`")) {
				if _, err := fs.Stat(root, path.Clean(w)); err != nil && aPath.MatchString(w) && !known[w] {
					t.Errorf("%s: no file %s", page, w)
				}
				if f := aFlag.FindStringSubmatch(w); f != nil && !ourFlag[f[1]] && !slices.Contains(foreignFlags, f[1]) {
					t.Errorf("%s: no flag --%s", page, f[1])
				}
			}
			for _, target := range aTarget.FindAllStringSubmatch(code, -1) {
				if !regexp.MustCompile(`(?m)^([\w/ -]+ )?` + regexp.QuoteMeta(target[1]) + `\b.*:`).Match(makefile) {
					t.Errorf("%s: no target %s of make", page, target[1])
				}
			}
		}
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			target := page
			if l[1] != "" {
				target = path.Join(path.Dir(page), l[1])
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s: link to %s, which does not exist", page, target)
			}
			anchor := func(h []string) bool {
				return l[2] == strings.ReplaceAll(regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
			}
			if l[2] != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(pages[target], -1), anchor) {
				t.Errorf("%s: %s has no heading for #%s", page, target, l[2])
			}
		}
	}
}
