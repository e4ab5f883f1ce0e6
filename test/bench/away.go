package main

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"minikcm/test/faults"
	"minikcm/test/must"
)

const (
	awayDials       = "connection attempts while away"
	watchesResumed  = "return to all custom types watched"
	listsAfterwards = "lists after the return"

	awayTypes    = 300
	awayTime     = 30 * time.Second
	watchesQuiet = 5 * time.Second
)

// measureAway counts the connection attempts of a manager with many watches while the API server refuses connections.
func measureAway(ctx context.Context, r *rig, c contestant) []reading {
	proxy := r.startProxy()
	r.launchWorking(ctx, c)
	custom := faults.Watches()
	custom.PathPrefix = "/apis/" + customGroup
	watched, since := 0, time.Now()
	must.Poll(ctx, pollInterval, func() bool {
		if open := proxy.OpenWatches(custom); open != watched {
			watched, since = open, time.Now()
		}
		return watched >= awayTypes && time.Since(since) >= watchesQuiet
	})
	before := refusedDials()
	must.Succeed(proxy.Outage(faults.Refused))
	must.Pause(ctx, awayTime)
	dials := refusedDials() - before
	seen, back := len(proxy.Requests()), time.Now()
	must.Succeed(proxy.Restore())
	must.Poll(ctx, pollInterval, func() bool { return proxy.OpenWatches(custom) >= watched })
	resumed, lists := time.Since(back).Seconds(), 0.
	for _, q := range proxy.Requests()[seen:] {
		whole := q.Verb == "list" && !strings.Contains(q.Query+"&", "limit=1&")
		if whole || strings.Contains(q.Query, "sendInitialEvents=true") {
			lists++
		}
	}
	return []reading{{awayDials, "1/s", dials / awayTime.Seconds()}, {watchesResumed, "s", resumed}, {listsAfterwards, "", lists}}
}

// refusedDials is the number of connection attempts on this machine that have failed. During an outage only the manager
// dials a port without a listener.
func refusedDials() float64 { return *must.Get(must.Get(procfs.Self()).Snmp()).AttemptFails }
