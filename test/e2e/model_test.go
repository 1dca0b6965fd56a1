package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// turn is one answer of the scripted model: text, and a command for the agent's
// shell tool unless it is the last.
type turn struct{ text, command string }

// model is a scripted model server: as much of the Anthropic Messages API as the
// agent needs. The turn to play is the number of answers already in the request.
type model struct {
	addr  string
	turns []turn

	mu       sync.Mutex
	requests []string
	keys     map[string]bool
}

func newModel(t *testing.T, turns ...turn) *model {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &model{addr: l.Addr().String(), turns: turns, keys: map[string]bool{}}
	server := &http.Server{Handler: m}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return m
}

// ServeHTTP answers POST /v1/messages.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	m.mu.Lock()
	m.requests = append(m.requests, r.Method+" "+r.URL.Path+"\n"+string(body))
	m.keys[r.Header.Get("X-Api-Key")] = true
	m.mu.Unlock()
	if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
		http.NotFound(w, r)
		return
	}
	var q struct {
		Model    string
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools  []json.RawMessage
		Stream bool
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	n := 0
	for _, msg := range q.Messages {
		if msg.Role == "assistant" && strings.Contains(string(msg.Content), `"tool_use"`) {
			n++
		}
	}
	answer := turn{text: "ok"} // a request without tools is a side question
	if len(q.Tools) > 0 {
		answer = m.turns[min(n, len(m.turns)-1)]
	}
	m.play(w, q.Model, answer, n)
}

// play streams one message as server-sent events.
func (m *model) play(w http.ResponseWriter, name string, answer turn, n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(event string, v map[string]any) {
		v["type"] = event
		b, _ := json.Marshal(v)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, b)
	}
	stop := "end_turn"
	send("message_start", map[string]any{"message": map[string]any{
		"id": fmt.Sprintf("msg_%d", n), "type": "message", "role": "assistant", "model": name, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": map[string]any{"input_tokens": 100, "output_tokens": 1},
	}})
	block := func(i int, start, delta map[string]any) {
		send("content_block_start", map[string]any{"index": i, "content_block": start})
		send("content_block_delta", map[string]any{"index": i, "delta": delta})
		send("content_block_stop", map[string]any{"index": i})
	}
	block(0, map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": answer.text})
	if answer.command != "" {
		stop = "tool_use"
		input, _ := json.Marshal(map[string]string{"command": answer.command, "description": "work"})
		block(1, map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", n), "name": "Bash", "input": map[string]any{}},
			map[string]any{"type": "input_json_delta", "partial_json": string(input)})
	}
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": 50}})
	send("message_stop", map[string]any{})
}

// seen is all requests as one text.
func (m *model) seen() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.requests, "\n")
}
