package leadership

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// TestSIGTERMWhileTheAPIServerIsAway ends managers whose endpoint needs reviews and client CAs of an unreachable API
// server.
func TestSIGTERMWhileTheAPIServerIsAway(t *testing.T) {
	startCluster(t)
	work(t, time.Second)
	leader, standby := pair(t, func(t *testing.T, name string, _ ...string) *contender {
		t.Helper()
		reviewer := here(t).KubeconfigFor(t, setConfig(t, name))
		return startDirect(t, name, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", controlplane.FreePort(t)),
			"--authentication-kubeconfig="+reviewer, "--authorization-kubeconfig="+reviewer)
	})
	awaitCreate(t, time.Time{}, 30*time.Second, leader)
	controlplane.Must(t, here(t).KillAPIServer())
	controlplane.Must(t, leader.Signal(syscall.SIGTERM))
	controlplane.Must(t, standby.Signal(syscall.SIGTERM))
	leader.EndsWith(t, 0)
	standby.EndsWith(t, 0)
	controlplane.Must(t, here(t).StartAPIServer())
}
