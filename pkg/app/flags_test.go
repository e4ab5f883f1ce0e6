package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// docs/flags.md is made from the flags. UPDATE_DOCS=1 writes it.
func TestFlagsDocumentation(t *testing.T) {
	const file = "../../docs/flags.md"
	want := flagsPage(NewOptions(Controllers()).Flags())
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/flags.md is out of date, run this test with UPDATE_DOCS=1 (-flags +file):\n%s", diff)
	}
}

func flagsPage(sections cliflag.NamedFlagSets) string {
	var b strings.Builder
	b.WriteString("# Flags\n\nGenerated from the program by a test; do not edit. Names and defaults are those of kube-controller-manager v1.37 unless the\n" +
		"meaning says otherwise or the flag is marked *ours*; *differs* marks a default that is not upstream's.\n" +
		"Any other flag of kube-controller-manager is an error, and the message names all such flags. `--help` prints longer texts\n" +
		"for some flags. Gates are listed in [feature-gates.md](feature-gates.md).\n")
	for _, name := range sections.Order {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | default | meaning |\n| --- | --- | --- |\n", strings.ToUpper(name[:1])+name[1:])
		sections.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			value, mark := f.DefValue, map[string]string{
				"namespace-deletion-grace-period": " *ours*", "garbage-collector-dry-run": " *ours*", "garbage-collector-ignored-resources": " *ours*",
				"kube-api-qps": " *differs: 20*", "leader-elect-resource-name": " *differs: kube-controller-manager*",
			}[f.Name]
			if value != "" {
				value = "`" + value + "`"
			}
			usage := f.Usage
			if name == "logs" || name == "metrics" || strings.HasSuffix(f.Name, "-version") || f.Name == "feature-gates" || f.Name == "tls-cipher-suites" {
				usage = firstSentence(usage)
			}
			usage = strings.NewReplacer("\n", "<br>", "|", "\\|", "'*'", "`*`").Replace(usage)
			fmt.Fprintf(&b, "| `--%s` | %s%s | %s |\n", f.Name, value, mark, usage)
		})
	}
	return b.String()
}

// firstSentence shortens texts of libraries, which --help prints whole.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if first, _, cut := strings.Cut(text, ". "); cut {
		return first + "."
	}
	return text
}

// writeFile writes a file of the test and returns its path.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
