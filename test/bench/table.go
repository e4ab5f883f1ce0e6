package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// report is the output of the program.
type report struct {
	Machine  string
	Rows     []row
	Targets  []verdict
	Failures []string // turns without numbers, with the reason
}

func (r report) text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Machine)
	b.WriteString(align(rowCells(r.Rows), "llllrrrrr"))
	if len(r.Targets) > 0 {
		fmt.Fprintf(&b, "\n%s", align(targetCells(r.Targets), "lrrl"))
	}
	writeList(&b, "failed", r.Failures)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeList(b *strings.Builder, title string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "\n%s: %s", title, line)
	}
	if len(lines) > 0 {
		b.WriteString("\n")
	}
}

func rowCells(rows []row) [][]string {
	cells := [][]string{{"scenario", "metric", "unit", "contestant", "n", "min", "median", "max", "ratio"}}
	var previous row
	for _, r := range rows {
		line := []string{
			r.Scenario, r.Name, r.Unit, r.Contestant, strconv.Itoa(r.N), number(r.Min), number(r.Median), number(r.Max), "",
		}
		if r.Ratio > 0 {
			line[8] = number(r.Ratio)
		}
		if r.Scenario == previous.Scenario {
			line[0] = ""
			if r.metric == previous.metric {
				line[1], line[2] = "", ""
			}
		}
		cells, previous = append(cells, line), r
	}
	return cells
}

func targetCells(verdicts []verdict) [][]string {
	cells := [][]string{{"target (medians)", "measured", "at most", ""}}
	for _, v := range verdicts {
		word := "met"
		if !v.Met {
			word = "MISSED"
		}
		cells = append(cells, []string{v.What, number(v.Measured), number(v.Most), word})
	}
	return cells
}

func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

func align(rows [][]string, sides string) string {
	widths := make([]int, len(sides))
	for _, cells := range rows {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, cells := range rows {
		var line strings.Builder
		for i, cell := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if sides[i] == 'l' {
				line.WriteString(cell + pad + "  ")
			} else {
				line.WriteString(pad + cell + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// good: every turn gave numbers and no target was missed.
func (r report) good() bool {
	for _, v := range r.Targets {
		if !v.Met {
			return false
		}
	}
	return len(r.Failures) == 0
}
