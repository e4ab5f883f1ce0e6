package app

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/version"
)

// versionFlag is --version: true prints the version, raw all that is known about the build, and a value that starts with v
// changes the version that is reported. The zero value is the default, false.
type versionFlag string

const (
	versionPrint versionFlag = "true"
	versionRaw   versionFlag = "raw"
)

func (v *versionFlag) addFlag(fs *pflag.FlagSet) {
	fs.Var(v, "version", "Print the version and exit; --version=raw prints all build information, --version=vX.Y.Z... changes the version that is reported.")
	fs.Lookup("version").NoOptDefVal = string(versionPrint)
}

// Set implements pflag.Value.
func (v *versionFlag) Set(s string) error {
	switch {
	case s == string(versionRaw):
		*v = versionRaw
		return nil
	case strings.HasPrefix(s, "v"):
		*v = ""
		return version.SetDynamicVersion(s)
	}
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("want true, false, raw or a version such as %s", version.Get().GitVersion)
	}
	*v = ""
	if on {
		*v = versionPrint
	}
	return nil
}

// String implements pflag.Value.
func (v *versionFlag) String() string {
	if *v == "" {
		return "false"
	}
	return string(*v)
}

// Type implements pflag.Value.
func (v *versionFlag) Type() string { return "version" }

// print writes what was asked for and says whether anything was.
func (v versionFlag) print(w io.Writer) (bool, error) {
	var err error
	switch v {
	case versionPrint:
		_, err = fmt.Fprintf(w, "%s %s\n", Name, version.Get().GitVersion)
	case versionRaw:
		_, err = fmt.Fprintf(w, "%#v\n", version.Get())
	default:
		return false, nil
	}
	return true, err
}
