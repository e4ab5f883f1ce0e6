package namespace_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/faults"
)

var objects = flag.Int("objects", 0, "size of the namespace whose deletion is to be watched from /proc; 0: none")

// The memory of a real process while it deletes a namespace of -objects ConfigMaps, see CONTRIBUTING.md. The race detector would
// need several times as much.
func TestMemoryOfALargeNamespace(t *testing.T) {
	const size, limit = 1 << 10, 30 << 10 // bytes, KiB
	if *objects == 0 {
		t.Skip("takes minutes: go test -args -objects=20000")
	}
	proxy := faults.New(t, scoped(t, rights("large")))
	manager := launch(t, proxy, "--leader-elect=false", "--namespace-deletion-grace-period=0")
	client := cluster.Client(t)
	small, large := create(t), create(t)
	fill(t, client, small, 30)
	data := map[string]string{"x": strings.Repeat("x", size)}
	begin := time.Now()
	atOnce(*objects, 8, func(i int) {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%05d", i)}, Data: data}
		if _, err := client.CoreV1().ConfigMaps(large).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d ConfigMaps made in %v", *objects, time.Since(begin).Round(time.Second))
	remove(t, small)
	gone(t, small, 20*time.Second)
	before := kibOf(t, manager.Pid(), "VmRSS")
	begin = time.Now()
	remove(t, large)
	gone(t, large, 10*time.Minute)
	peak := kibOf(t, manager.Pid(), "VmHWM")
	t.Logf("gone after %v; resident %d KiB before, %d KiB at most", time.Since(begin).Round(100*time.Millisecond), before, peak)
	if peak-before > limit {
		t.Errorf("resident memory grown by %d KiB, want at most %d", peak-before, limit)
	}
	left, err := client.CoreV1().ConfigMaps(large).List(t.Context(), metav1.ListOptions{Limit: 1})
	check(t, err)
	if len(left.Items) > 0 {
		t.Errorf("left over: %s", left.Items[0].Name)
	}
}

// kibOf reads a line of /proc/<pid>/status.
func kibOf(t *testing.T, pid int, field string) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			_, err := fmt.Sscan(value, &kib)
			check(t, err)
		}
	}
	return kib
}
