package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReferenceIsUpToDate: the pages in the repository are what the code says.
func TestReferenceIsUpToDate(t *testing.T) {
	for _, p := range docPages(newRoot(&frame{})) {
		got, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", p.name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(p.text) {
			t.Errorf("docs/reference/%s is not what the code says: run go generate ./internal/cli", p.name)
		}
	}
}
