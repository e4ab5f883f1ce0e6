// Package flagcheck collects what is wrong with the values of flags, so that a user is told everything at once.
package flagcheck

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Problems are what is wrong, one entry each, which begins with the flag: "--name: ". The zero value is empty.
type Problems []error

// Append adds problems that name their flags already.
func (p *Problems) Append(errs ...error) { *p = append(*p, errs...) }

// Addf adds a problem of a flag, named without its dashes.
func (p *Problems) Addf(flag, format string, args ...any) {
	*p = append(*p, fmt.Errorf("--"+flag+": "+format, args...))
}

// Positive adds a problem if a duration is zero or less.
func (p *Problems) Positive(flag string, d time.Duration) {
	if d <= 0 {
		p.Addf(flag, "%v is not greater than zero", d)
	}
}

// NotNegative adds a problem if a duration is less than zero.
func (p *Problems) NotNegative(flag string, d time.Duration) {
	if d < 0 {
		p.Addf(flag, "%v is negative", d)
	}
}

// Workers adds a problem if there is no worker.
func (p *Problems) Workers(flag string, n int) {
	if n < 1 {
		p.Addf(flag, "%d is less than 1, nothing would be worked on", n)
	}
}

// Rate adds a problem if a number of times per second is negative, infinite or no number.
func (p *Problems) Rate(flag string, perSecond float32) {
	if !(perSecond >= 0 && !math.IsInf(float64(perSecond), 0)) {
		p.Addf(flag, "%v is not a rate of 0 or more", perSecond)
	}
}

// NotBlank adds a problem if one of the values is empty or only spaces.
func (p *Problems) NotBlank(flag string, values []string) {
	for _, v := range values {
		if strings.TrimSpace(v) == "" {
			p.Addf(flag, "has an empty value")
			return
		}
	}
}

// OneLine folds the text of an error, which other packages spread over lines, into one line. The error is wrapped.
func OneLine(err error) error { return oneLine{err} }

type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
