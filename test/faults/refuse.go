package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type refusal struct {
	code       int
	retryAfter time.Duration // 0: no header
	html       bool
}

// retrySeconds is the Retry-After value, rounded up.
func (f refusal) retrySeconds() int { return int((f.retryAfter + time.Second - 1) / time.Second) }

func (f refusal) apiStatus(method string, i info) metav1.Status {
	resource := schema.GroupResource{Resource: i.resource}
	status := apierrors.NewGenericServerResponse(f.code, method, resource, i.name, "refused by the fault proxy", f.retrySeconds(), true).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}

func (f refusal) writeTo(w http.ResponseWriter, method string, i info) error {
	if f.html {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.code)
		_, err := fmt.Fprintf(w, "<html><body>%d %s</body></html>\n", f.code, http.StatusText(f.code))
		return err
	}
	body, err := json.Marshal(f.apiStatus(method, i))
	if err != nil {
		return fmt.Errorf("encode refusal: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	if s := f.retrySeconds(); s > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(s))
	}
	w.WriteHeader(f.code)
	_, err = w.Write(body)
	return err
}
