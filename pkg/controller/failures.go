package controller

import (
	"regexp"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	failureLogPeriod = time.Minute
	failureLogLines  = 10 // per cause and period
	failureCauses    = 10 // per period; all further causes count as one
)

// failureLog limits the log lines about failures.
type failureLog struct {
	lock   sync.Mutex
	causes map[string]failure // of this period; nil before its first failure
	period *time.Timer        // ends this period
}

// failure is the last failure of one cause.
type failure struct {
	count  int
	logger klog.Logger
	err    error
}

// variableWord matches a word of an error that may differ between failures of one cause: a name, an address
// or a number.
var variableWord = regexp.MustCompile(`\S*["/0-9]\S*`)

// AdmitsLine counts a failure, and reports whether a log line may be written for it. A sync calls AdmitsLine
// for failures that are no error of the sync.
func (f *failureLog) AdmitsLine(logger klog.Logger, err error) bool {
	cause := variableWord.ReplaceAllLiteralString(err.Error(), "")
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.causes == nil {
		f.causes = map[string]failure{}
		f.period = time.AfterFunc(failureLogPeriod, f.endPeriod)
	}
	if _, known := f.causes[cause]; !known && len(f.causes) >= failureCauses {
		cause = ""
	}
	f.causes[cause] = failure{f.causes[cause].count + 1, logger, err}
	return f.causes[cause].count <= failureLogLines
}

// endPeriod writes one log line per cause that had too many failures.
func (f *failureLog) endPeriod() {
	f.lock.Lock()
	if f.causes != nil {
		f.period.Stop() // a term may have ended before the period
	}
	causes := f.causes
	f.causes = nil
	f.lock.Unlock()
	for _, last := range causes {
		if more := last.count - failureLogLines; more > 0 {
			last.logger.Error(last.err, "Left out log lines about failures", "count", more)
		}
	}
}
