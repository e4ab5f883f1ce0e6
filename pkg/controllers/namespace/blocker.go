package namespace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"minikcm/pkg/controllers/internal/discovery"
)

// Values of the cause label.
const (
	causePods       = "pods"       // pods remain
	causeFinalizers = "finalizers" // other objects have finalizers
	causeContent    = "content"    // other objects without finalizers remain
	causeDiscovery  = "discovery"  // a part of the API is not discovered
	causeError      = "error"      // requests fail
	causeGrace      = "grace"      // no objects are known, but the grace period is not over
	causeNamespace  = "namespace"  // the empty namespace has finalizers of others; only for the condition
)

// maxReasons bounds the text of a blocker: a broken API server can affect thousands of types.
const maxReasons = 20

// blockersOf returns the causes that keep a namespace, and a text for users.
func blockersOf(r report) (causes []string, text string) {
	var texts, unlisted []string
	add := func(cause, text string) {
		texts = append(texts, text)
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	for _, result := range r.results {
		held, free := causeFinalizers, causeContent
		if result.resource.GroupResource() == discovery.Pods.GroupResource() {
			held, free = causePods, causePods
		}
		for _, f := range slices.Sorted(maps.Keys(result.finalizers)) {
			n := result.finalizers[f]
			add(held, fmt.Sprintf("%d %s held by finalizer %s (%s)", n, result.resource, f, exampleText(result.examples[f], int64(n))))
		}
		if names, ok := result.examples[""]; ok {
			add(free, fmt.Sprintf("%d %s remaining (%s)", result.remaining, result.resource, exampleText(names, result.remaining)))
		}
		if result.err != nil {
			add(causeError, conditionText(result.err))
		}
		if result.unlisted {
			unlisted = append(unlisted, result.resource.String())
		}
	}
	for _, f := range r.content.Failing {
		add(causeDiscovery, fmt.Sprintf("APIService %s cannot be discovered: %s", f.APIService(), conditionText(f.Err)))
	}
	if len(r.content.Failing) == 0 && r.content.Err != nil {
		add(causeDiscovery, "discovery fails: "+conditionText(r.content.Err))
	}
	if r.content.ParseErr != nil {
		add(causeDiscovery, r.content.ParseErr.Error())
	}
	for _, f := range r.finalizers {
		add(causeNamespace, "the namespace itself is held by its finalizer "+f)
	}
	if r.rejection != nil {
		add(causeError, conditionText(r.rejection))
	}
	if more := len(texts) - maxReasons; more > 0 {
		texts = append(texts[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	if len(unlisted) > 0 && len(texts) > 0 {
		texts = append(texts, "types that cannot be listed were not looked at: "+strings.Join(unlisted, ", "))
	}
	return causes, strings.Join(texts, "; ")
}

// exampleText returns the names of some of n objects.
func exampleText(names []string, n int64) string {
	text := strings.Join(names, ", ")
	if n > int64(len(names)) {
		text += ", …"
	}
	return text
}
