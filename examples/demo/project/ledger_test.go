package ledger

import "testing"

func TestBalance(t *testing.T) {
	if got := Balance([]int64{100, 250, -50}); got != 300 {
		t.Errorf("Balance is %d, want 300", got)
	}
}

func TestBalanceOfNothing(t *testing.T) {
	if got := Balance(nil); got != 0 {
		t.Errorf("Balance is %d, want 0", got)
	}
}
