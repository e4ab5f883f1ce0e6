package main

// key names a quantity of one contestant in one scenario.
type key struct {
	scenario   string
	contestant string
	metric     string
}

// sample is all that was read for one key, in the order of the runs.
type sample struct {
	key
	unit   string
	values []float64
}

// results collects readings. The zero value is ready for use.
type results struct {
	samples []*sample // in the order of their first reading
	byKey   map[key]*sample
}

func (r *results) add(t turn, readings []reading) {
	if r.byKey == nil {
		r.byKey = map[key]*sample{}
	}
	for _, one := range readings {
		k := key{t.scenario.name, t.contestant.name, one.Name}
		s, ok := r.byKey[k]
		if !ok {
			s = &sample{key: k, unit: one.Unit}
			r.byKey[k] = s
			r.samples = append(r.samples, s)
		}
		s.values = append(s.values, one.value)
	}
}

// median of a key; false if nothing was read for it.
func (r *results) median(k key) (float64, bool) {
	s, ok := r.byKey[k]
	if !ok {
		return 0, false
	}
	return median(s.values), true
}

// row is one line of the table.
type row struct {
	Scenario string
	metric
	Contestant string
	spread
	// Ratio is the median divided by that of the scenario's peer; 0 if there is no peer or it was not measured or is 0.
	Ratio float64
}

// rows are ordered by scenario and contestant as in all, metric by metric, so that what is to be compared stands together.
func (r *results) rows(all []scenario) []row {
	var rows []row
	for _, s := range all {
		for _, m := range r.metricsOf(s.name) {
			for _, c := range s.contestants {
				sample, ok := r.byKey[key{s.name, c.name, m.Name}]
				if !ok {
					continue
				}
				line := row{Scenario: s.name, metric: m, Contestant: c.name, spread: spreadOf(sample.values)}
				if peer, ok := r.median(key{s.name, s.peer, m.Name}); ok && peer != 0 {
					line.Ratio = line.Median / peer
				}
				rows = append(rows, line)
			}
		}
	}
	return rows
}

// metricsOf a scenario, in the order in which they were first read.
func (r *results) metricsOf(scenario string) []metric {
	var metrics []metric
	seen := map[string]bool{}
	for _, s := range r.samples {
		if s.scenario == scenario && !seen[s.key.metric] {
			seen[s.key.metric] = true
			metrics = append(metrics, metric{s.key.metric, s.unit})
		}
	}
	return metrics
}
