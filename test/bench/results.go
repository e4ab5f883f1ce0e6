package main

type key struct {
	scenario   string
	contestant string
	metric     string
}

type sample struct {
	key
	unit   string
	values []float64
}

// results collects readings. The zero value is ready for use.
type results struct {
	samples []*sample
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

func (r *results) median(k key) (float64, bool) {
	s, ok := r.byKey[k]
	if !ok {
		return 0, false
	}
	return median(s.values), true
}

type row struct {
	Scenario string
	metric
	Contestant string
	spread
	// Ratio is the median divided by the median of the scenario's peer, or 0 without a peer.
	Ratio float64
}

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
