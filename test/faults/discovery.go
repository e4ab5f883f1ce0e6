package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
)

// HideGroup removes an API group from the results of GET /apis, as an API server does right after a start.
func HideGroup(group string) Fault { return Fault{name: "hide group", hiddenGroup: group} }

// hideGroup edits the result of GET /apis.
func hideGroup(answer *http.Response, group string) error {
	var document map[string]any
	err := json.NewDecoder(answer.Body).Decode(&document)
	_ = answer.Body.Close()
	if err != nil {
		return fmt.Errorf("decode discovery: %w", err)
	}
	for _, list := range []string{"items", "groups"} { // of aggregated discovery, of an APIGroupList
		groups, ok := document[list].([]any)
		if !ok {
			continue
		}
		document[list] = slices.DeleteFunc(groups, func(g any) bool {
			entry, _ := g.(map[string]any)
			if meta, ok := entry["metadata"].(map[string]any); ok {
				entry = meta
			}
			return entry["name"] == group
		})
	}
	body, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("encode discovery: %w", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	answer.ContentLength = int64(len(body))
	answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	answer.Header.Del("ETag")
	return nil
}
