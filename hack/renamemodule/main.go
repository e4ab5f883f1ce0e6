// Command renamemodule gives this repository's module another path, and with it the modules below it: in go.mod files, imports, and wherever
// else a package or module is named by its path. Run it by hack/rename-module.
//
// Go fetches a module only by a path that begins with a host name. Until there is one, this is what makes it fetchable for those who keep
// a copy of their own.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	dir := flag.String("dir", ".", "root of the repository")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: hack/rename-module PATH, such as example.com/platform/minikcm")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	changed, err := rename(*dir, flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename-module:", err)
		os.Exit(1)
	}
	fmt.Printf("%d files changed; the module is %s now\n", changed, flag.Arg(0))
}
