package app

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"k8s.io/component-base/version"
)

func addVersionFlag(fs *pflag.FlagSet, value *string) {
	fs.StringVar(value, "version", "false", "Print the version and exit; --version=raw prints all build information.")
	fs.Lookup("version").NoOptDefVal = "true"
}

// PrintVersion writes the output of --version and reports whether the flag asks for any.
func (o *Options) PrintVersion(w io.Writer) (bool, error) {
	var err error
	switch o.version {
	case "false":
		return false, nil
	case "true":
		_, err = fmt.Fprintf(w, "%s %s\n", Name, version.Get().GitVersion)
	case "raw":
		_, err = fmt.Fprintf(w, "%#v\n", version.Get())
	default:
		err = fmt.Errorf("--version=%s: want true, false or raw", o.version)
	}
	return true, err
}
