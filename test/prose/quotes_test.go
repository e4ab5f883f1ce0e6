package prose

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestQuotedTests fails for a test in a page of docs/ that is no longer the one in the code.
func TestQuotedTests(t *testing.T) {
	pages, _ := filepath.Glob("../../docs/*.md")
	sources, _ := filepath.Glob("../../pkg/*/*/*_test.go")
	var code strings.Builder
	for _, source := range sources {
		content, _ := os.ReadFile(source)
		code.Write(content)
	}
	quotes := 0
	for _, page := range pages {
		content, _ := os.ReadFile(page)
		for _, quote := range regexp.MustCompile("(?ms)^func Test.*?^}$").FindAllString(string(content), -1) {
			if quotes++; !strings.Contains(code.String(), "\n"+quote+"\n") {
				t.Errorf("%s quotes a test that has changed:\n%s", page, quote)
			}
		}
	}
	if quotes == 0 {
		t.Error("no page quotes a test")
	}
}
