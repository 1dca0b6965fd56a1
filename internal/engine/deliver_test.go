package engine

import "testing"

func TestAndMore(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: " (and 1 more)", 12: " (and 12 more)"} {
		if got := andMore(n); got != want {
			t.Errorf("andMore(%d) = %q, want %q", n, got, want)
		}
	}
}
