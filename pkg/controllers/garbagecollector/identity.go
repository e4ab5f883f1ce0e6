package garbagecollector

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
)

// id is a UID in 16 bytes: a UUID as such, any other text as its hash.
type id [16]byte

// idOf returns the id of a UID, and whether the UID can be read off it again.
func idOf(uid types.UID) (of id, exact bool) {
	if parsed, ok := parseUUID(string(uid)); ok {
		return parsed, true
	}
	// Who writes a reference chooses its UID. It must not be possible to choose one that is taken for another object's.
	sum := sha256.Sum256([]byte(uid))
	copy(of[:], sum[:])
	return of, false
}

// String is the UUID. It is what logs show of a key.
func (i id) String() string {
	var text [36]byte
	at := 0
	for _, part := range [...][]byte{i[0:4], i[4:6], i[6:8], i[8:10], i[10:16]} {
		if at > 0 {
			text[at] = '-'
			at++
		}
		at += hex.Encode(text[at:], part)
	}
	return string(text[:])
}

// parseUUID takes the one form that the API server writes: 36 characters, lower case.
func parseUUID(text string) (of id, ok bool) {
	if len(text) != 36 {
		return id{}, false
	}
	at := 0
	for i := 0; i < len(text); {
		switch i {
		case 8, 13, 18, 23:
			if text[i] != '-' {
				return id{}, false
			}
			i++
			continue
		}
		high, okHigh := nibble(text[i])
		low, okLow := nibble(text[i+1])
		if !okHigh || !okLow {
			return id{}, false
		}
		of[at] = high<<4 | low
		at++
		i += 2
	}
	return of, true
}

func nibble(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
