package node

import (
	"context"
	"errors"
	"strings"

	"minikcm/pkg/outcome"
)

// blinding reports whether an error may mean that kubelets cannot reach the API server either: it gave no answer, or said that
// it was not able to. An answer about the object (not found, conflict, forbidden) says nothing about kubelets, nor does the end of a term.
func blinding(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || strings.Contains(err.Error(), rateLimited) {
		return false
	}
	return outcome.IsUnavailable(err)
}

// rateLimited is how client-go v0.37 begins the error of a request that its own limiter did not let pass. It has no type.
const rateLimited = "client rate limiter Wait returned an error"
