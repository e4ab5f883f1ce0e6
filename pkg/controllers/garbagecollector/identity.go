package garbagecollector

import (
	"crypto/sha256"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
)

// id is a UID in 16 bytes: a UUID as such, any other text as its hash. Logs show the UUID of a key.
type id = uuid.UUID

// idOf returns the id of a UID, and whether the UID can be read off it again.
func idOf(uid types.UID) (of id, exact bool) {
	if len(uid) == 36 && !strings.ContainsAny(string(uid), "ABCDEF") { // the one form that the API server writes
		if of, err := uuid.Parse(string(uid)); err == nil {
			return of, true
		}
	}
	// Who writes a reference chooses its UID. It must not be possible to choose one that is taken for another object's.
	sum := sha256.Sum256([]byte(uid))
	copy(of[:], sum[:])
	return of, false
}
