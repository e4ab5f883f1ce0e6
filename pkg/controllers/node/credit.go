package node

import "time"

// maxExtension bounds the grace a node is given because of blindness, beyond the blind time itself, in grace periods. Without a
// bound an API server that fails now and then would keep a dead node alive for ever.
const maxExtension = 3

// blindness is a stretch of time in which kubelets may have shown signs of life that we could not see.
type blindness struct {
	since time.Time // the last moment at which we certainly saw
	until time.Time // the first moment at which we see again
}

// credit gives a node its time back: from the end of a blindness it has a whole grace period. The blind time itself is free;
// what is given on top of it is limited, after which only the blind time is taken out.
func credit(h heartbeat, b blindness, grace time.Duration) heartbeat {
	if !h.seen.Before(b.until) {
		return h // seen since
	}
	silent := b.since.Sub(h.seen) // before the blindness: really silent, as far as we know
	if silent <= 0 {
		h.seen = b.until
		return h
	}
	given := min(silent, max(0, maxExtension*grace-h.extended))
	h.extended += given
	h.seen = b.until.Add(given - silent)
	return h
}
