package kubeclient

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// CheckReady returns an error if /readyz shows that the API server is not ready. Until then discovery may
// lack types, and the authorizer may lack roles. An API server without /readyz counts as ready.
func CheckReady(ctx context.Context, client rest.Interface) error {
	body, err := client.Get().AbsPath("/readyz").DoRaw(ctx)
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	var failed []string
	for line := range strings.Lines(string(body)) { // most lines are checks that pass
		if check, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ := strings.Cut(check, " ")
			failed = append(failed, name)
		}
	}
	if len(failed) > 0 && apierrors.IsInternalError(err) {
		err = apierrors.NewInternalError(fmt.Errorf("failing checks: %s", strings.Join(failed, ", ")))
	}
	return fmt.Errorf("API server is not ready: %w", err)
}
