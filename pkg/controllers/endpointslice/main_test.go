package endpointslice

import (
	"testing"

	"minikcm/internal/faket"
)

func TestMain(m *testing.M) { faket.Main(m) }
