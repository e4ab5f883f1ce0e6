package kcmtest

import (
	"github.com/onsi/ginkgo/v2"

	"minikcm/kcmtest"
)

// The tests of many operators are specs.
var _ kcmtest.TB = (*ginkgo.GinkgoTBWrapper)(nil)
