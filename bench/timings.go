package main

import (
	"encoding/json"
	"slices"
	"time"
)

// Timings are the durations of one contender, one for each round.
type Timings []time.Duration

// quantile returns the duration that a share q of the rounds did not exceed.
func (t Timings) quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// median returns the middle duration, of an even number the mean of both.
func (t Timings) median() time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// MarshalJSON writes seconds.
func (t Timings) MarshalJSON() ([]byte, error) {
	seconds := make([]float64, len(t))
	for i, d := range t {
		seconds[i] = d.Seconds()
	}
	return json.Marshal(map[string]any{"median": t.median().Seconds(), "rounds": seconds})
}
