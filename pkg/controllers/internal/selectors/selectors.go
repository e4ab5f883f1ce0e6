// Package selectors parses label selectors.
package selectors

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ErrAll is the error of a selector that selects everything.
var ErrAll = errors.New("selector is empty")

// ParseSelector parses the selector of an object. A missing or an empty selector is an error; the error of an empty
// one is ErrAll. Plain labels are not validated again, because the API server did so and every sync would
// repeat it.
func ParseSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	switch {
	case s == nil:
		return nil, errors.New("selector is missing")
	case len(s.MatchExpressions) > 0:
		return metav1.LabelSelectorAsSelector(s)
	case len(s.MatchLabels) == 0:
		return nil, ErrAll
	}
	return labels.SelectorFromValidatedSet(s.MatchLabels), nil
}
