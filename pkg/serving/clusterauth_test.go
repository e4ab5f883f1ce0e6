package serving

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"minikcm/pkg/internal/fakeapi"
)

// publisher is the transport to an API server that publishes one ConfigMap. All its waits are those of channels and timers.
type publisher struct {
	lock    sync.Mutex
	away    bool              // no connection can be made
	data    map[string]string // of the ConfigMap; nil: there is none
	version int               // of the data
	watches int               // requests for one
	changed chan struct{}     // closed with each change, which ends the watches
}

func (p *publisher) set(change func(*publisher)) {
	p.lock.Lock()
	defer p.lock.Unlock()
	change(p)
	p.version++
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *publisher) RoundTrip(req *http.Request) (*http.Response, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.away {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	version := strconv.Itoa(1 + p.version)
	if req.URL.Query().Get("watch") != "" {
		p.watches++
		if req.URL.Query().Get("resourceVersion") != version {
			return answer(http.StatusGone, http.NoBody), nil // which makes the client list
		}
		return answer(http.StatusOK, &silence{req.Context(), p.changed}), nil
	}
	list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: version}}
	if p.data != nil {
		list.Items = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: authConfigMapNamespace, Name: authConfigMapName}, Data: p.data}}
	}
	text, err := json.Marshal(list)
	return answer(http.StatusOK, io.NopCloser(strings.NewReader(string(text)))), err
}

func answer(code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// silence is the stream of a watch that has nothing to tell; it ends with its request or its server.
type silence struct {
	ctx context.Context
	end <-chan struct{}
}

func (s *silence) Read([]byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-s.end:
		return 0, io.EOF
	}
}

func (s *silence) Close() error { return nil }

// follow starts to follow what p publishes with the client of the reviews.
func follow(t *testing.T, p *publisher) (c *clusterAuth, stop func()) {
	t.Helper()
	p.changed = make(chan struct{})
	client, err := kubernetes.NewForConfig(reviewConfig(&rest.Config{Host: "http://api.invalid", Transport: p}, "test"))
	if err != nil {
		t.Fatal(err)
	}
	c = newClusterAuth(client)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); c.run(ctx) }()
	return c, func() { cancel(); <-ended }
}

// Probes and shutdowns must not wait for a library that sleeps before it asks again.
func TestClusterCAsStopBeingFollowedAtOnceWhileTheAPIServerIsAway(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &publisher{away: !known}
			_, stop := follow(t, p)
			time.Sleep(5 * time.Minute)
			p.set(func(p *publisher) { p.away = true })
			time.Sleep(5 * time.Minute)
			told := time.Now()
			stop()
			if took := time.Since(told); took > 0 {
				t.Errorf("known before: %v; it went on for %v", known, took)
			}
		})
	}
}

func TestClusterCAsAreWatchedByOneStreamThatNobodyCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{data: map[string]string{}}
		_, stop := follow(t, p)
		defer stop()
		time.Sleep(65 * time.Second)
		p.lock.Lock()
		defer p.lock.Unlock()
		if p.watches != 1 {
			t.Errorf("%d watches in 65 s, want 1", p.watches)
		}
	})
}

func TestClusterCAsStayInForceWhenTheyAreNoLongerPublished(t *testing.T) {
	ca := string(fakeapi.NewCA(t, "clients").PEM)
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{data: map[string]string{"client-ca-file": ca}}
		c, stop := follow(t, p)
		defer stop()
		trusted := func(want string) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			_, ok := c.clientCA.VerifyOptions()
			if got := string(c.clientCA.CurrentCABundleContent()); got != want || ok != (want != "") {
				t.Errorf("trusted are %q, %v, want %q", got, ok, want)
			}
		}
		trusted(ca)
		p.set(func(p *publisher) { p.data = nil })
		trusted(ca)
		p.set(func(p *publisher) { p.data = map[string]string{"client-ca-file": "broken"} })
		trusted(ca)
		p.set(func(p *publisher) { p.data = map[string]string{} }) // the API server trusts no client certificates any more
		trusted("")
	})
}

// What is said about the ConfigMap is true before and after it was read, and said once.
func TestClusterCAsWords(t *testing.T) {
	const before, after = "client certificates do not count", "stay in force"
	for _, tt := range []struct {
		name  string
		tell  func(context.Context, *clusterAuth)
		known bool
		want  string
	}{
		{"never published", func(ctx context.Context, c *clusterAuth) { c.changed(ctx, lookupMissing, nil) }, false, before},
		{"deleted", func(ctx context.Context, c *clusterAuth) { c.changed(ctx, lookupMissing, nil) }, true, after},
		{"never readable", func(ctx context.Context, c *clusterAuth) { c.failed(ctx, noAccess) }, false, before},
		{"role taken away", func(ctx context.Context, c *clusterAuth) { c.failed(ctx, noAccess) }, true, after},
		{"broken from the start", func(ctx context.Context, c *clusterAuth) { c.read(ctx, clientCAs("x")) }, false, before},
		{"broken later", func(ctx context.Context, c *clusterAuth) { c.read(ctx, clientCAs("x")) }, true, after},
		{"no API server", func(ctx context.Context, c *clusterAuth) { c.failed(ctx, errors.New("refused")) }, false, before},
		{"API server gone", func(ctx context.Context, c *clusterAuth) { c.failed(ctx, errors.New("refused")) }, true, after},
		{"watch too old", func(ctx context.Context, c *clusterAuth) { c.failed(ctx, apierrors.NewResourceExpired("old")) }, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			ctx := klog.NewContext(t.Context(), logger)
			c := newClusterAuth(nil)
			if tt.known {
				c.read(ctx, clientCAs(""))
			}
			tt.tell(ctx, c)
			tt.tell(ctx, c)
			lines := slices.DeleteFunc(strings.Split(logger.GetSink().(ktesting.Underlier).GetBuffer().String(), "\n"), func(line string) bool {
				return !strings.Contains(line, before) && !strings.Contains(line, after)
			})
			if tt.want == "" && len(lines) != 0 || tt.want != "" && (len(lines) != 1 || !strings.Contains(lines[0], tt.want)) {
				t.Errorf("logged %q, want one line with %q", lines, tt.want)
			}
		})
	}
}

var noAccess = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, authConfigMapName, nil)

func clientCAs(pem string) *corev1.ConfigMap {
	return &corev1.ConfigMap{Data: map[string]string{"client-ca-file": pem}}
}
