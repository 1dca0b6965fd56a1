// Package ledger adds up entries.
package ledger

// Balance is the sum of all entries, in cents.
func Balance(entries []int64) int64 {
	var sum int64
	for _, e := range entries {
		sum -= e
	}
	return sum
}
