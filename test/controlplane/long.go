package controlplane

import "os"

// Long reports whether tests may take many minutes: the environment variable LONG is set, as by `make test-long`.
func Long() bool { return os.Getenv("LONG") != "" }
