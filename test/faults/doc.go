// Package faults is a TLS reverse proxy in front of an API server whose faults a test scripts: answers lost after the
// commit, writes committed late, refusals, delays, requests stopped half-way, watch streams cut, frozen or slowed, the
// whole server away.
//
// One proxy serves one client, so that each client of a test has a script of its own. The proxy reaches the server
// with the credentials it was given and hands out a config without any:
//
//	proxy := faults.New(t, cluster.ConfigFor("manager"), faults.WithName("manager-a"))
//	client, err := kubernetes.NewForConfig(proxy.Config())
//
// # Rules
//
// A rule is a [Match], a [Fault] and how often. The first rule that fires decides about a request.
//
//	// two creates of pods are committed, but their client never learns it
//	proxy.Inject(faults.On("create", "pods"), faults.DropAnswer(), faults.Next(2))
//
//	// one write in five, of any kind, until removed
//	rule := proxy.Inject(faults.On(faults.Writes, "pods,replicasets/*"), faults.DropAnswer(), faults.Chance(0.2))
//	...
//	rule.Remove()
//
//	// the client is cut at once, the write commits 3 s later
//	proxy.Inject(faults.On("create", "pods"), faults.LateCommit(0, 3*time.Second), faults.Next(1))
//
//	// the third status update is refused; Retry-After makes client-go send it again
//	proxy.Inject(faults.On("update", "replicasets/status"), faults.RefuseRetryAfter(429, time.Second), faults.After(2), faults.Next(1))
//
//	proxy.Inject(faults.Match{Verbs: "get,update", Resource: "leases", Name: "controller-manager"}, faults.DelayRequest(2*time.Second))
//
// # Gates
//
// A gate stops a request at a known place, before the server ([Hold]) or between the commit and the answer
// ([HoldAnswer]), until the test decides: deterministic interleavings without sleeping.
//
//	gate := faults.NewGate()
//	proxy.Inject(faults.On("create", "pods"), faults.HoldAnswer(gate), faults.Next(1))
//	held := gate.Next(t)  // the pod exists, its creator does not know
//	process.Kill()        // or anything else that should happen just now
//	held.Cut()            // or Release
//
// # Watches
//
//	freeze := proxy.FreezeWatches(faults.Watches("pods")) // Watches() is all of them
//	...
//	freeze.Thaw() // the backlog arrives in order; or freeze.Cut(): it is lost with the streams
//
//	slow := proxy.SlowWatches(faults.Watches("pods"), 2*time.Second)
//	proxy.CutWatches(faults.Watches("leases"))
//
//	idle := proxy.CutIdleWatches(faults.Watches(), 30*time.Second)      // a proxy that ends what is idle
//	stuck := proxy.StickWatches(faults.Watches("pods"), time.Minute)    // an API server that has stopped to watch, and sends bookmarks
//	proxy.Inject(faults.Rewatches(), faults.BadGateway(503))            // a load balancer without servers
//	proxy.Inject(faults.StreamingLists("pods"), faults.BadGateway(502))
//	proxy.Inject(faults.On("", ""), faults.DelayRequest(2*time.Second)) // an API server that is slow
//
// # Outages
//
//	err := proxy.Outage(faults.Refused) // or BlackHole, Partition, HungDials
//	...
//	err = proxy.Restore()
//	...
//	proxy.CutConnectionsOf(faults.Watches()) // with HungDials, watches cannot be opened again
//	...
//	proxy.Inject(faults.Match{PathPrefix: "/apis"}, faults.HideGroup("example.com"))
//	err = proxy.RotateAuthority() // all connections are reset, and the server's certificate is one that nobody knows
//
// # What was seen
//
//	proxy.Count("create", "pods", 201)           // answered so by the server, whether or not the client saw it
//	proxy.OpenWatches(faults.Watches("pods"))    // streams open now
//	for _, r := range proxy.Requests() { ... }   // r.Forwarded, r.Answered, r.Code, r.UserAgent ...
//
// Every draw of [Chance] comes from one seed, printed by [New]; run the test with FAULTS_SEED set to it to draw the same
// again. The numbers repeat; which request gets which number still hangs on the order of their arrival.
//
// If the real server is gone, the client's stream is reset: the proxy never makes up an answer. [Refused] looks like
// a dead server in every detail.
package faults
