// Command shadow has the garbage collector only observe, beside a kube-controller-manager whose collector acts, on a cluster where namespaces,
// Deployments, custom types and all kinds of owners come and go. Then it compares what one would have done with what the other did.
//
//	go run ./test/shadow -for 1h -seed 1
//
// A false positive is an object that ours would have deleted although an owner of it lived, or that the other
// never deleted although not all of its owners were seen to go; and an owner
// that it would have let go before a dependent that blocks it, or while an orphan still referred to it. There must be none, and the exit code says so.
//
// A miss is an object that the other deleted and ours would not have. Most are gone before there was time to decide, which is no fault: only those that stood
// for longer are told one by one.
package main
