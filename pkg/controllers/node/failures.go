package node

import (
	"context"
	"errors"
	"strings"

	"minikcm/pkg/answer"
)

// request is what is asked of one object. Reading an object and writing it fail for different reasons. The zero value is a probe.
type request struct {
	what  string
	write bool
}

func reading(kind, name string) request { return request{what: kind + " " + name} }

func writing(kind, name string) request { return request{what: kind + " " + name, write: true} }

// failures are the requests that failed when they were last made. One object of which a request fails is a suspicion and no more: a
// webhook may refuse it, or it cannot be decoded. Once other requests have succeeded, the failure is isolated: it is that object's own, and says
// nothing about the API server until a request of the object has succeeded.
type failures map[request]bool // true: isolated

// add takes in a request that failed. It reports whether the failure says anything about the API server.
func (f failures) add(of request) bool {
	if f[of] {
		return false
	}
	f[of] = false
	return true
}

// succeeded takes in a request that succeeded. It isolates what failed before it: a write every failure, a read those of reads.
func (f failures) succeeded(by request) {
	if len(f) == 0 {
		return
	}
	delete(f, by)
	for of := range f {
		if by.write || !of.write {
			f[of] = true
		}
	}
}

// suspects counts the failures that are not isolated.
func (f failures) suspects() (n int) {
	for _, isolated := range f {
		if !isolated {
			n++
		}
	}
	return n
}

// hasRead reports whether a failure that is not isolated is of a read.
func (f failures) hasRead() bool {
	for of, isolated := range f {
		if !of.write && !isolated {
			return true
		}
	}
	return false
}

// forget drops the failures of a node that is gone.
func (f failures) forget(node string) {
	for of := range f {
		if strings.HasSuffix(of.what, " "+node) {
			delete(f, of)
		}
	}
}

// blinding reports whether an error may mean that kubelets cannot reach the API server either: it gave no answer, or said that
// it was not able to. An answer about the object (not found, conflict, forbidden) is an answer; the end of a term is none.
func blinding(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || strings.Contains(err.Error(), rateLimited) {
		return false
	}
	return answer.Unable(err)
}

// rateLimited is how client-go v0.37 begins the error of a request that its own limiter did not let pass. It has no type.
const rateLimited = "client rate limiter Wait returned an error"
