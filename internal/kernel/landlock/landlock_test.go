//go:build linux

package landlock

import "testing"

func TestRulesetGrowsWithABI(t *testing.T) {
	for abi, want := range map[ABI]int{1: 8, 3: 8, 4: 16, 5: 16, 6: 24, 7: 24} {
		if got := len(abi.Ruleset()); got != want {
			t.Errorf("ABI %d: %d bytes, want %d", abi, got, want)
		}
	}
	if ABI(5).Scopes() != 0 || ABI(6).Scopes() == 0 {
		t.Error("scopes begin with ABI 6")
	}
}

func TestWritableNeverMakesDevices(t *testing.T) {
	for abi := ABI(1); abi <= 7; abi++ {
		if abi.ReadWrite()&0x840 != 0 { // MAKE_CHAR 1<<6, MAKE_BLOCK 1<<11
			t.Errorf("ABI %d lets devices be made", abi)
		}
		if abi.ReadWrite()&^abi.Handled() != 0 || abi.ReadExec()&^abi.Handled() != 0 {
			t.Errorf("ABI %d grants what it does not handle", abi)
		}
	}
}
