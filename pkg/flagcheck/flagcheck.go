// Package flagcheck collects invalid values of flags, so that one error names all of them.
package flagcheck

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Problems holds one text per invalid value. Each text begins with the flag: "--name: ". The zero value is empty.
type Problems []error

// Addf adds a formatted text for a flag. The name of the flag has no dashes.
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

// Workers adds a problem if the number of workers is less than 1.
func (p *Problems) Workers(flag string, n int) {
	if n < 1 {
		p.Addf(flag, "%d is less than 1, nothing would be worked on", n)
	}
}

// Rate adds a problem if a rate per second is negative, infinite or not a number.
func (p *Problems) Rate(flag string, perSecond float32) {
	if !(perSecond >= 0 && !math.IsInf(float64(perSecond), 0)) {
		p.Addf(flag, "%v is not a rate of 0 or more", perSecond)
	}
}

// NotBlank adds a problem if any value is empty or blank.
func (p *Problems) NotBlank(flag string, values []string) {
	for _, v := range values {
		if strings.TrimSpace(v) == "" {
			p.Addf(flag, "has an empty value")
			return
		}
	}
}

// OneLine wraps an error and joins the lines of its text.
func OneLine(err error) error { return oneLine{err} }

type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
