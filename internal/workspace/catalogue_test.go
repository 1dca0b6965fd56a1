package workspace

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// The index finds a line by its own names only if they are written as it wants.
func TestCatalogueIsWrittenAsItIsRead(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range catalogue {
		if r.kind == "" || r.by == "" || r.dir == "" && len(r.files) == 0 {
			t.Errorf("line %+v is not complete", r)
		}
		if r.dir != strings.ToLower(r.dir) || strings.ContainsAny(r.dir, "*/") {
			t.Errorf("directory %q is no plain name in lower case", r.dir)
		}
		for _, f := range r.files {
			if f != strings.ToLower(f) || strings.ContainsAny(f, `?[\`) {
				t.Errorf("%q is not in lower case, or another kind of pattern", f)
			}
			parts := strings.Split(f, "/")
			if i := slices.Index(parts, "**"); len(parts) > maxRest || i >= 0 && i != len(parts)-1 {
				t.Errorf("%q is longer than what is kept of a path, or goes on after its two stars", f)
			}
			if r.dir != "" {
				continue
			}
			if seen[f] {
				t.Errorf("%q is there twice", f)
			}
			seen[f] = true
			if rest, star := strings.CutPrefix(f, "*"); star && path.Ext("x"+rest) != rest || strings.Contains(f, "/") {
				t.Errorf("%q is no name, or no extension", f)
			}
			if got := known.byName(strings.ReplaceAll(f, "*", "x")); got == nil || got.kind != r.kind {
				t.Errorf("%q finds %v, want %s", f, got, r.kind)
			}
		}
	}
}

func BenchmarkCatalogueOfAPlainName(b *testing.B) {
	s := scope{}
	for b.Loop() {
		s.find("controller_test.go", false)
	}
}
