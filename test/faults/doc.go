// Package faults is a TLS reverse proxy between one client and an API server. A test scripts the faults of the proxy:
//
//	proxy := faults.New(t, cluster.ConfigFor("manager"), faults.WithName("manager-a"))
//	client, err := kubernetes.NewForConfig(proxy.Config())
//	proxy.Inject(faults.On("create", "pods"), faults.DropAnswer(), faults.Next(2)) // the creates are committed
//
// A [Rule] is a [Match], a [Fault] and a count. The first rule that fires decides about a request. A [Gate] holds a
// request before the server ([Hold]) or the response after the commit ([HoldAnswer]) until the test releases or cuts
// the request. A [WatchFault] freezes, slows or cuts watch streams. An [Outage] takes the whole server away.
// [Proxy.Requests] returns the requests seen so far.
//
// All random choices come from a seed, which [New] logs. A test with the same FAULTS_SEED repeats the choices.
package faults
