package leadership

import (
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// The wall clock of one manager is wrong by an hour, jumps, and is wrong the other way. A lease lasts as long as it lasts: nobody takes
// it from the living or loses it, and the dead are replaced when they are.

func TestClockThatIsAhead(t *testing.T)  { wrongClock(t, "1h", syscall.SIGUSR2) }
func TestClockThatIsBehind(t *testing.T) { wrongClock(t, "-1h", syscall.SIGUSR1) }

func wrongClock(t *testing.T, off string, back syscall.Signal) {
	long(t)
	load := work(t)
	wrong, err := time.ParseDuration(off)
	if err != nil {
		t.Fatal(err)
	}
	a, b := pair(t, func(t *testing.T, name string) *contender {
		return launch(t, name, "/usr/bin/env", "WALL_CLOCK="+map[string]string{"a": off, "b": "0s"}[name], managerWithAClock(t))
	})
	leads := func(want time.Duration) {
		t.Helper()
		createdBy(t, a, time.Now(), 10*time.Second)
		controlplane.Consistently(t, leaseDuration+time.Second, standing)
		if got := renewedAt(t); (got - want).Abs() > 20*time.Minute {
			t.Errorf("the lease was renewed %v from now, want about %v: the clock is not what it should be", got, want)
		}
		if taken := takings(leaseChanges(t)); len(taken) != 1 {
			t.Errorf("the lease was taken %d times, want once", len(taken))
		}
	}
	leads(wrong)
	a.signal(t, back)
	leads(0)
	a.signal(t, back)
	b.signal(t, back)
	leads(-wrong)
	relieves(t, a, b)                                                            // the clock of b is as wrong as that of a, and so it is right
	c := launch(t, "c", "/usr/bin/env", "WALL_CLOCK="+off, managerWithAClock(t)) // two hours from b
	c.waitUntilWarm(t)
	controlplane.Consistently(t, leaseDuration+time.Second, standing)
	killed := time.Now()
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("first pod of the last leader %v after SIGKILL", createdBy(t, c, killed, 2*leaseDuration))
	load.settles(t)
	judge(t, a, b, c)
	expired(t, b, c)
}

// renewedAt is when the holder renewed the lease by its own clock, from now.
func renewedAt(t *testing.T) time.Duration {
	t.Helper()
	lease, err := lease(t.Context(), t)
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(lease.Spec.RenewTime.Time)
}

// managerWithAClock is the manager and two files of testdata/wallclock, which put a clock of their own under the Go runtime. So all of
// the process sees it, client-go and TLS included, while the monotonic clock stays right.
func managerWithAClock(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the clock is written for linux/amd64")
	}
	path, err := clockManager()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var clockManager = sync.OnceValues(func() (string, error) {
	files, err := filepath.Abs("testdata/wallclock")
	if err != nil {
		return "", err
	}
	return controlplane.BuildManager("wallclock", filepath.Join(files, "jump.go"), filepath.Join(files, "jump_amd64.s"))
})
