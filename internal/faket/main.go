package faket

import (
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Main runs the tests of a package that uses synctest bubbles.
//
// The error back-off of utilruntime compares the time of an error with the time of the last error of the process. A
// bubble begins in the year 2000. An error in a bubble would therefore wait for the real time, 26 years later, and
// Main removes the back-off.
func Main(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // logging
	os.Exit(m.Run())
}
