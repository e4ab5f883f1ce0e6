package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// jump is added to what the kernel says of the wall clock, in seconds.
var jump int64

// installClock puts wallClock where the runtime keeps the address of the vDSO's clock_gettime.
func installClock()

// WALL_CLOCK is how far the wall clock of this process is off from its start; SIGUSR1 moves it an hour ahead, SIGUSR2 an hour back.
// The monotonic clock stays as it is, as when an administrator sets the time.
func init() {
	if d, err := time.ParseDuration(os.Getenv("WALL_CLOCK")); err == nil {
		jump = int64(d / time.Second)
	}
	installClock()
	jumps := make(chan os.Signal, 2)
	signal.Notify(jumps, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range jumps {
			if s == syscall.SIGUSR1 {
				jump += 3600
			} else {
				jump -= 3600
			}
		}
	}()
}
