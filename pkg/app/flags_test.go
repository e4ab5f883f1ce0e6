package app

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"minikcm/internal/fakeapi"
)

// docs/flags.md is made from the flags. UPDATE_DOCS=1 writes it.
func TestFlagsDocumentation(t *testing.T) {
	const file = "../../docs/flags.md"
	want := flagsPage(NewOptions(Controllers()).Flags())
	if os.Getenv("UPDATE_DOCS") != "" {
		fakeapi.NoError(t, os.WriteFile(file, []byte(want), 0o644))
	}
	fakeapi.WantEqual(t, "docs/flags.md, which a run of this test with UPDATE_DOCS=1 writes,", string(fakeapi.Must(os.ReadFile(file))), want)
}

func flagsPage(sections cliflag.NamedFlagSets) string {
	var b strings.Builder
	b.WriteString("# Flags\n\nGenerated from the program by a test; do not edit. Names and defaults are those of kube-controller-manager v1.37.\n" +
		"*Ours* marks a flag that kube-controller-manager lacks, *upstream* its default where that differs. Any other flag of\n" +
		"kube-controller-manager is an error, and one message names all such flags. Gates: [feature-gates.md](feature-gates.md).\n")
	for _, name := range sections.Order {
		fmt.Fprintf(&b, "\n## %s\n\n", strings.ToUpper(name[:1])+name[1:])
		sections.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			value, mark := "", map[string]string{
				"namespace-deletion-grace-period": " *ours*", "garbage-collector-dry-run": " *ours*", "garbage-collector-ignored-resources": " *ours*",
				"kube-api-qps": " (*upstream*: `20`)", "leader-elect-resource-name": " (*upstream*: `kube-controller-manager`)",
			}[f.Name]
			if text := strings.Trim(f.DefValue, "[]"); text != "" {
				value = "=" + text
			}
			usage := f.Usage
			if name == "logs" || name == "metrics" || strings.HasSuffix(f.Name, "-version") || f.Name == "feature-gates" || f.Name == "tls-cipher-suites" {
				usage = firstSentence(usage)
			}
			usage = strings.NewReplacer("\n", " ", "'*'", "`*`").Replace(usage)
			fmt.Fprintf(&b, "- `--%s%s`%s: %s\n", f.Name, value, mark, usage)
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
