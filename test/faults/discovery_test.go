package faults

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestHideGroup(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{
			"aggregated", `{"items":[{"metadata":{"name":"apps"}},{"metadata":{"name":"example.com"}}],"kind":"APIGroupDiscoveryList"}`,
			`{"items":[{"metadata":{"name":"apps"}}],"kind":"APIGroupDiscoveryList"}`,
		},
		{"groups alone", `{"groups":[{"name":"example.com"},{"name":"apps"}]}`, `{"groups":[{"name":"apps"}]}`},
		{"without the group", `{"groups":[{"name":"apps"}]}`, `{"groups":[{"name":"apps"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := &http.Response{Header: http.Header{"Etag": {`"1"`}}, Body: io.NopCloser(strings.NewReader(tt.answer))}
			if err := hideGroup(answer, "example.com"); err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil || string(body) != tt.want || answer.ContentLength != int64(len(body)) {
				t.Errorf("answer = %s, %v, length %d, want %s", body, err, answer.ContentLength, tt.want)
			}
			if answer.Header.Get("ETag") != "" {
				t.Error("the edited answer has the ETag of the whole one")
			}
		})
	}
}
