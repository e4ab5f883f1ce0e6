package main

// Names of the programs in bin/.
const (
	oursProgram     = "controller-manager"
	upstreamProgram = "kube-controller-manager"
)

// contestant is a program that does a scenario's work.
type contestant struct {
	name    string   // one word, for -contestants and file names
	program string   // oursProgram, upstreamProgram
	args    []string // on top of those that every manager gets
}

var (
	ours = contestant{name: "ours", program: oursProgram}
	// oursZeroGrace is right for exactly one API server, which is what there is here.
	oursZeroGrace = contestant{
		name: "ours-zero-grace", program: oursProgram, args: []string{"--namespace-deletion-grace-period=0s"},
	}
	upstream = contestant{name: "upstream", program: upstreamProgram}
	// upstreamUnlimited lifts upstream's limit of 20 requests per second out of the way.
	upstreamUnlimited = contestant{
		name: "upstream-5000qps", program: upstreamProgram, args: []string{"--kube-api-qps=5000", "--kube-api-burst=10000"},
	}
	// upstreamRelease gives the lease up on exit, which upstream by default does not.
	upstreamRelease = contestant{
		name: "upstream-release", program: upstreamProgram,
		args: []string{"--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true"},
	}
)

// managerArgs are what both programs are given to run the same controllers in the same surroundings.
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
