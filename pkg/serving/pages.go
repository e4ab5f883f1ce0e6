package serving

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/healthz"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// newMux returns the handler of authorized requests.
func newMux(cfg Config, deps Deps) http.Handler {
	m := &listingMux{ServeMux: http.NewServeMux()}
	for path, list := range map[string][]Check{"/healthz": deps.Live, "/livez": deps.Live, "/readyz": deps.Ready} {
		healthz.InstallPathHandler(m.ServeMux, path, checkers(path, list)...)
		m.paths = append(m.paths, path)
	}
	m.Handle("/metrics", metricsHandler(deps.Metrics))
	slis.SLIMetricsWithReset{}.Install(m)
	m.Handle("/configz", configzHandler(deps.Configz))
	if cfg.Flagz {
		m.Handle("/flagz", flagzHandler(deps.Name, cfg.Flags))
	}
	if cfg.Profiling {
		addDebugging(m.ServeMux)
	}
	if cfg.Statusz {
		m.Handle("/statusz", statuszHandler(deps.Name, cfg.EmulationVersion, append(m.paths, "/statusz")))
	}
	return m
}

// listingMux records the paths that /statusz lists.
type listingMux struct {
	*http.ServeMux
	paths []string
}

func (m *listingMux) Handle(path string, h http.Handler) {
	m.paths = append(m.paths, path)
	m.ServeMux.Handle(path, h)
}

// metricsHandler serves the global registry of the libraries together with the metrics of the program. A metric
// that cannot be collected does not affect other metrics.
func metricsHandler(ours prometheus.Gatherer) http.Handler {
	all := prometheus.Gatherers{legacyregistry.DefaultGatherer, ours}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		promhttp.HandlerFor(all, promhttp.HandlerOpts{
			ErrorHandling:    promhttp.ContinueOnError,
			ErrorLog:         quietLog(klog.FromContext(r.Context())),
			ProcessStartTime: legacyregistry.GetProcessStart(),
		}).ServeHTTP(w, r)
	})
}

func configzHandler(configs map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(configs)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body)
	})
}

// notForMachines is the head of /flagz and /statusz, as in other components.
const notForMachines = "\n%s %s\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility " +
	"guarantees and is for debugging purposes only.\n\n"

// flagzHandler serves the values of all flags but hidden flags and secrets.
func flagzHandler(program string, sections cliflag.NamedFlagSets) http.Handler {
	return textPage(func(w io.Writer) {
		_, _ = fmt.Fprintf(w, notForMachines, program, "flagz")
		var lines []string
		for _, fs := range sections.FlagSets {
			fs.VisitAll(func(f *pflag.Flag) {
				value := f.Value.String()
				if len(f.Annotations["classified"]) > 0 {
					value = "CLASSIFIED"
				}
				if !f.Hidden {
					lines = append(lines, f.Name+"="+value+"\n")
				}
			})
		}
		slices.Sort(lines)
		_, _ = io.WriteString(w, strings.Join(lines, ""))
	})
}

func statuszHandler(program, emulation string, paths []string) http.Handler {
	start := legacyregistry.GetProcessStart()
	slices.Sort(paths)
	return textPage(func(w io.Writer) {
		_, _ = fmt.Fprintf(w, notForMachines, program, "statusz")
		_, _ = fmt.Fprintf(w, "Started: %s\nUp: %s\nGo version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
			start.Format(time.UnixDate), time.Since(start).Truncate(time.Second), runtime.Version(),
			version.Get().GitVersion, emulation, strings.Join(paths, " "))
	})
}

// textPage serves text/plain. The structured forms of upstream's pages do not exist here.
func textPage(write func(io.Writer)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if goautoneg.Negotiate(cmp.Or(r.Header.Get("Accept"), "*/*"), []string{"text/plain"}) == "" {
			http.Error(w, "only text/plain is served here", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		write(w)
	})
}

// addDebugging adds the profiles and the log verbosity.
func addDebugging(m *http.ServeMux) {
	m.HandleFunc("/debug/pprof/", pprof.Index)
	m.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("/debug/pprof/profile", pprof.Profile)
	m.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("/debug/pprof/trace", pprof.Trace)
	m.HandleFunc("/debug/flags/v", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			http.Error(w, "unrecognized http method", http.StatusNotAcceptable)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 64))
		if err == nil {
			var message string
			if message, err = logs.GlogSetter(string(body)); err == nil {
				_, _ = fmt.Fprintln(w, message)
				return
			}
		}
		http.Error(w, err.Error(), http.StatusBadRequest)
	})
}
