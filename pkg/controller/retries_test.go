package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"minikcm/internal/fakeapi"
)

func TestFailingKeysShareTokens(t *testing.T) {
	for _, tt := range []struct {
		n, requests int // per sync
		takes       time.Duration
		groups      int // 0: none
	}{
		{1, 1, time.Millisecond, 0}, {120, 1, time.Millisecond, 0}, {2_000, 1, time.Millisecond, 0}, {10_000, 1, time.Millisecond, 0},
		{200, 16, time.Millisecond, 0}, {2_000, 16, time.Millisecond, 0}, {2_000, 1, time.Millisecond, 50}, {2_000, 1, time.Millisecond, 2_000},
		{10_000, 3, 25 * time.Millisecond, 0}, {400, 16, 160 * time.Millisecond, 0}, // the first syncs take long
	} {
		n := tt.n
		synctest.Test(t, func(t *testing.T) {
			var requests, healthy atomic.Int64
			var mended atomic.Bool
			var onceAt []time.Time
			l := newLoop(t, 20, 0, func(ctx context.Context, key string) (Result, error) {
				time.Sleep(tt.takes)
				for range tt.requests {
					httptrace.ContextClientTrace(ctx).GetConn("")
				}
				if key == "once" {
					onceAt = append(onceAt, time.Now())
				}
				requests.Add(int64(tt.requests))
				if mended.Load() || key == "once" && len(onceAt) == 2 {
					healthy.Add(1)
					return Result{}, nil
				}
				return Result{}, errors.New("no")
			}).GroupBy(func(key string) string {
				if n, err := strconv.Atoi(key); err == nil && tt.groups > 0 {
					return fmt.Sprint("group", n%tt.groups)
				}
				return ""
			})
			var keys []string
			for i := range n {
				keys = append(keys, fmt.Sprint(i))
			}
			end := term(l, keys...)
			defer end()
			time.Sleep(5 * time.Second)
			l.Add("once")
			time.Sleep(time.Second)
			if got := requests.Load(); got > failedRequestsLimit+10*100 {
				t.Errorf("%d requests within the first 6 s of %d keys that fail (%+v)", got, n, tt)
			}
			var last int64
			for second := 7; second < 120; second += 5 {
				if second == 32 { // events do not bypass the limit
					for _, key := range keys {
						l.Add(key)
					}
				}
				last = requests.Load()
				time.Sleep(5 * time.Second)
				if got := requests.Load() - last; got > 5*100 {
					t.Errorf("%d requests within 5 s from second %d of %d keys that fail (%+v), want at most 500", got, second, n, tt)
				}
			}
			// A first retry waits for the tokens of two keys at most.
			most := 2 * time.Duration(tt.requests) * time.Second / firstRetriesPerSecond
			if waited := onceAt[1].Sub(onceAt[0]); waited > most {
				t.Errorf("a key that failed once was retried after %v, want %v at most", waited, most)
			}
			mended.Store(true)
			healthy.Store(0)
			for _, phase := range []struct {
				keys int
				most time.Duration
			}{{1, time.Minute}, {n, 15 * time.Second}} {
				begun := time.Now()
				for healthy.Load() < int64(phase.keys) && time.Since(begun) < 2*time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(begun); took > phase.most {
					t.Errorf("%d of %d keys recovered within %v, want %v at most", phase.keys, n, took, phase.most)
				}
			}
		})
	}
}

// A sync may fail after thousands of successful requests. Shorter syncs wait for 200 of the requests at most.
func TestLongSyncsDelayFirstRetriesBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed, retried time.Time
		l := newLoop(t, 2, 0, func(ctx context.Context, key string) (Result, error) {
			if strings.HasPrefix(key, "long") {
				for range 2_000 {
					httptrace.ContextClientTrace(ctx).GetConn("")
				}
			} else if failed.IsZero() {
				failed = time.Now()
			} else {
				retried = time.Now()
				return Result{}, nil
			}
			return Result{}, errors.New("no")
		})
		end := term(l, "long1", "long2")
		defer end()
		time.Sleep(time.Second)
		added := time.Now()
		l.Add("short")
		time.Sleep(time.Minute)
		synctest.Wait()
		if waited := failed.Sub(added); waited > time.Second {
			t.Errorf("the first sync of another key came after %v, want 1s at most", waited)
		}
		if waited := retried.Sub(failed); retried.IsZero() || waited > 10*time.Second {
			t.Errorf("the first retry of another key came after %v, want 10s at most", waited)
		}
	})
}

// A key that fails every other time is no sign that the cause of other failures is gone.
func TestFlappingKeyWakesNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures atomic.Int32
		var flap atomic.Bool
		keys := []string{"flapping"}
		l := newLoop(t, 20, 0, func(_ context.Context, key string) (Result, error) {
			if key == "flapping" && flap.Swap(!flap.Load()) {
				return Result{RequeueAfter: 100 * time.Millisecond}, nil
			}
			failures.Add(1)
			return Result{}, errors.New("no")
		})
		for i := range 100 {
			keys = append(keys, fmt.Sprint(i))
		}
		defer term(l, keys...)()
		time.Sleep(5 * time.Minute)
		before := failures.Load()
		time.Sleep(time.Minute)
		if got := failures.Load() - before; got > 15*60 {
			t.Errorf("%d failures in a minute", got)
		}
	})
}

// Keys of a group that fail in large numbers do not delay the first syncs of another group.
func TestGroupsShareFirstTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var good []time.Time
		l := newLoop(t, 5, 0, func(_ context.Context, key string) (Result, error) {
			if strings.HasPrefix(key, "good") {
				good = append(good, time.Now())
				return Result{}, nil
			}
			return Result{}, errors.New("no")
		}).GroupBy(func(key string) string { return strings.TrimRight(key, "0123456789") })
		defer term(l)()
		synctest.Wait()
		for i := range 10 {
			added := time.Now()
			l.Add(fmt.Sprint("good", i))
			for bad := range 2 * failedRequestsLimit {
				l.Add(fmt.Sprint("bad", 2*failedRequestsLimit*i+bad))
			}
			time.Sleep(time.Second)
			if synctest.Wait(); len(good) <= i {
				t.Fatalf("key %d was not synced within one second", i)
			} else if waited := good[i].Sub(added); waited > 200*time.Millisecond {
				t.Errorf("key %d was synced after %v, want 200ms at most", i, waited)
			}
		}
	})
}

// logged runs a loop of n keys for d and returns its error lines.
func logged(t *testing.T, n int, d time.Duration, r Reconcile[string]) (lines []string) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var lock sync.Mutex
	ctx = klog.NewContext(ctx, funcr.New(func(_, args string) {
		lock.Lock()
		defer lock.Unlock()
		lines = append(lines, args)
	}, funcr.Options{}))
	newLoop(t, 1, 0, r).Run(ctx, func() (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprint("k", i))
		}
		return keys
	})
	return lines
}

func TestConflictsTakeNoToken(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", errors.New("changed"))
	for _, tt := range []struct {
		name      string
		err       error
		conflicts int // of each key, in a row
		d         time.Duration
		most      int // syncs
		lines     bool
	}{
		{"of another writer", conflict, 5, time.Second, 500 * 6, false},
		{"outdated objects", ErrOutdated, 5, 10 * time.Second, 500 * 6, false},
		{"without end", conflict, 1 << 30, time.Minute, 500*(conflictRetries+1) + 200 + 60*50, true},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			tries, syncs := map[string]int{}, 0
			lines := logged(t, 500, tt.d, func(_ context.Context, key string) (Result, error) {
				syncs++
				if tries[key]++; tries[key] > tt.conflicts {
					return Result{}, nil
				}
				return Result{}, fmt.Errorf("patch pod %s: %w", key, tt.err)
			})
			if least := min(tt.conflicts+1, conflictRetries+1) * 500; syncs < least || syncs > tt.most {
				t.Errorf("%d syncs, want %d to %d", syncs, least, tt.most)
			}
			fakeapi.Want(t, "any error lines", len(lines) > 0, tt.lines)
		})
	}
}

// The end of a term ends the period of its failures, and not a period of the next term.
func TestEachTermHasItsOwnLogPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := failureLog{}, 0
		for range 5 {
			log.AdmitsLine(klog.Background(), errors.New("of an ended term"))
			log.endPeriod()
			time.Sleep(10 * time.Second)
		}
		for range 50 {
			if log.AdmitsLine(klog.Background(), errors.New("fails")) {
				lines++
			}
			time.Sleep(time.Second)
		}
		fakeapi.Want(t, "lines in 50 s", lines, failureLogLines)
	})
}

func TestFailuresOfOneCauseShareLogLines(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    func(key string) error
		causes int
	}{
		{"webhook", func(key string) error {
			return fmt.Errorf("delete configmaps %q: %w", "ns/"+key, apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "a.b.c": failed to call webhook: Post "https://10.0.0.1:443/%s": EOF`, key)))
		}, 1},
		{"names that look like words", func(key string) error {
			return errors.New("pod " + strings.NewReplacer("0", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6", "g", "7", "h", "8", "i", "9", "j").Replace(key) + " is denied")
		}, failureCauses + 1},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			syncs := 0
			lines := logged(t, 100, 3*time.Minute-time.Second, func(_ context.Context, key string) (Result, error) {
				syncs++
				return Result{}, tt.err(key)
			})
			perMinute := tt.causes * (failureLogLines + 1)
			if got := len(lines); got < 3*(failureLogLines+1) || got > 3*perMinute {
				t.Errorf("%d lines about %d failures in three minutes, want at most %d a minute", got, syncs, perMinute)
			}
			told := 0
			for _, line := range lines {
				n := 1
				if _, after, ok := strings.Cut(line, `"count"=`); ok {
					_, _ = fmt.Sscan(after, &n)
				}
				if told += n; !strings.Contains(line, `"key"="k`) {
					t.Errorf("line without an example: %s", line)
				}
			}
			fakeapi.Want(t, "failures in the log", told, syncs)
		})
	}
}
