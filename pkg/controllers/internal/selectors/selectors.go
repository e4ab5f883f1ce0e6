// Package selection reads the selectors of objects that select others by their labels.
package selectors

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ErrAll is the error of a selector that selects everything.
var ErrAll = errors.New("selector is empty")

// Of returns what a selector of an object selects. It refuses one that is missing or empty, which would select nothing for ever, or everything: ErrAll. Plain
// labels are not checked again, as the API server has: that would be most of the work, and it is done in every sync.
func Of(s *metav1.LabelSelector) (labels.Selector, error) {
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
