//go:build race

package controlplane

// raceEnabled tells whether this test was built with the race detector; the manager's binary then is, too.
const raceEnabled = true
