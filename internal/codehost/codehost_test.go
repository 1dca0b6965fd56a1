package codehost

import (
	"strings"
	"testing"
	"time"
)

func TestPermission(t *testing.T) {
	order := []Permission{PermissionNone, PermissionRead, PermissionWrite, PermissionAdmin}
	for i, p := range order {
		for j, q := range order {
			if p.AtLeast(q) != (i >= j) {
				t.Errorf("%s at least %s is %v", p, q, p.AtLeast(q))
			}
		}
	}
	for _, bad := range []Permission{"owner", "Admin", "write "} {
		if bad.AtLeast(PermissionRead) || bad.AtLeast(PermissionNone) || PermissionAdmin.AtLeast(bad) {
			t.Errorf("%q counts as something", bad)
		}
	}
	var zero Permission
	if zero.AtLeast(PermissionRead) || !zero.AtLeast(PermissionNone) {
		t.Error("the zero permission is not none")
	}
}

func TestZeroValuesAreSafe(t *testing.T) {
	if (Result{}).OK() || (MergeResult{}).OK() || (Protection{}).Exists {
		t.Error("a zero value is a success")
	}
	if (Text{}).VouchedAt(time.Unix(1, 0)) || (Text{ChangedAt: time.Unix(1, 0)}).VouchedAt(time.Time{}) {
		t.Error("an unknown time vouches")
	}
	if s := (Result{Outcome: NotAllowed, Reason: "\x1b[2J\n"}).String(); strings.ContainsAny(s, "\x1b\n") {
		t.Errorf("%q shows a host's text as it is", s)
	}
}

func TestCheckLine(t *testing.T) {
	for _, good := range []string{"", "x", "Grüße, 你好", "a\u202eb", strings.Repeat("x", 20)} {
		if err := CheckLine("f", good, 20); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"a\nb", "a\rb", "\x00", "\x7f", "\u0085", "\u2028", "\xff", strings.Repeat("x", 21)} {
		if CheckLine("f", bad, 20) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
