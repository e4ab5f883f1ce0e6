package faults

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
)

const seedVariable = "FAULTS_SEED"

// processSeed is shared by all proxies of a test binary.
var processSeed = sync.OnceValues(func() (uint64, error) {
	value := os.Getenv(seedVariable)
	if value == "" {
		return uint64(rand.Uint32()), nil
	}
	seed, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", seedVariable, err)
	}
	return seed, nil
})

// newRandom returns the source that belongs to a seed and a purpose. Different purposes give unrelated numbers.
func newRandom(seed uint64, purpose string) *rand.Rand {
	hash := fnv.New64a()
	hash.Write([]byte(purpose))
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}
