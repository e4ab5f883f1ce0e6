package main

// Names of the programs in bin/.
const (
	oursProgram     = "controller-manager"
	upstreamProgram = "kube-controller-manager"
)

// contestant is a program that does a scenario's work.
type contestant struct {
	name    string
	program string // oursProgram, upstreamProgram
	args    []string
}

var (
	ours = contestant{name: "ours", program: oursProgram}
	// oursZeroGrace is valid for a single API server.
	oursZeroGrace = contestant{
		name: "ours-zero-grace", program: oursProgram, args: []string{"--namespace-deletion-grace-period=0s"},
	}
	upstream = contestant{name: "upstream", program: upstreamProgram}
	// upstreamUnlimited lifts upstream's limit of 20 requests per second out of the way.
	upstreamUnlimited = contestant{
		name: "upstream-5000qps", program: upstreamProgram, args: []string{"--kube-api-qps=5000", "--kube-api-burst=10000"},
	}
	// upstreamRelease releases the lease on exit, which upstream does not by default.
	upstreamRelease = contestant{
		name: "upstream-release", program: upstreamProgram,
		args: []string{"--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true"},
	}
)

func managerArgs(c contestant, kubeconfig, controllers string, port int) []string {
	args := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--controllers=" + controllers, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=" + itoa(port),
	}
	if c.program == upstreamProgram {
		args = append(args, "--use-service-account-credentials=false")
	}
	return append(args, c.args...)
}
