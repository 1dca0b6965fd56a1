package tenant

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Schema is the config as a JSON Schema (draft 2020-12) for editors. It is made
// of the same table as the parser. It can't say all that the parser checks:
// what passes it may still have problems, never the other way round.
func Schema() ([]byte, error) {
	root := schemaOf(table().form)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "confine tenant config"
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(data, '\n'), nil
}

func schemaOf(f *form) map[string]any {
	schema := maps.Clone(f.schema)
	if schema == nil {
		schema = map[string]any{}
	}
	if len(f.either) > 0 {
		var either []any
		for _, form := range f.either {
			either = append(either, schemaOf(form))
		}
		schema["oneOf"] = either
	}
	switch {
	case f.item == nil:
	case f.named:
		schema["additionalProperties"] = schemaOf(f.item)
	default:
		schema["items"] = schemaOf(f.item)
	}
	if len(f.fields) > 0 {
		properties := map[string]any{}
		var required []string
		for _, e := range f.fields {
			properties[e.name] = entrySchema(e)
			if e.required {
				required = append(required, e.name)
			}
		}
		schema["properties"] = properties
		if len(required) > 0 {
			schema["required"] = required
		}
	}
	return schema
}

func entrySchema(e *entry) map[string]any {
	if e.later != "" {
		// Nothing passes, and an editor shows why.
		return map[string]any{"not": map[string]any{}, "description": "Not yet: " + e.later + "."}
	}
	schema := schemaOf(e.form)
	words := []string{e.doc}
	if e.standard != "" {
		words = append(words, "Default: "+e.standard+".")
	}
	if e.absent != "" {
		words = append(words, "Absent: "+e.absent+".")
	}
	if len(e.form.either) > 0 || schema["pattern"] != nil {
		words = append(words, "Accepted: "+e.form.accepts+".")
	}
	schema["description"] = strings.Join(words, " ")
	return schema
}
