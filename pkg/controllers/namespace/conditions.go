package namespace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionTexts holds the texts of a condition for both states.
type conditionTexts struct {
	condition        corev1.NamespaceConditionType
	okReason, okText string
	badReason        string // empty: see blockedReason
	badTextOrEmpty   func(report) string
}

// deletionBlocked is a condition in addition to upstream's five, which show types, counts and finalizers.
// deletionBlocked names objects and remedies.
const deletionBlocked corev1.NamespaceConditionType = "NamespaceDeletionBlocked"

// conditionTable has kube-controller-manager's five conditions, whose texts tools compare, and then ours, in
// the order in which they are added.
var conditionTable = []conditionTexts{
	{
		corev1.NamespaceDeletionDiscoveryFailure, "ResourcesDiscovered", "All resources successfully discovered",
		"DiscoveryFailed", discoveryText,
	},
	{
		corev1.NamespaceDeletionGVParsingFailure, "ParsedGroupVersions", "All legacy kube types successfully parsed",
		"GroupVersionParsingFailed", parsingText,
	},
	{
		corev1.NamespaceDeletionContentFailure, "ContentDeleted", "All content successfully deleted, may be waiting on finalization",
		"ContentDeletionFailed", failureText,
	},
	{
		corev1.NamespaceContentRemaining, "ContentRemoved", "All content successfully removed",
		"SomeResourcesRemain", remainingText,
	},
	{
		corev1.NamespaceFinalizersRemaining, "ContentHasNoFinalizers", "All content-preserving finalizers finished",
		"SomeFinalizersRemain", finalizersText,
	},
	{
		deletionBlocked, "NothingBlocks", "Nothing is known to hold up the deletion",
		"", adviceText,
	},
}

// withConditions returns the updated conditions and whether any condition changed. Conditions of others stay in
// place. Status True means a problem, and only a new status changes the transition time.
func withConditions(old []corev1.NamespaceCondition, r report, now metav1.Time) ([]corev1.NamespaceCondition, bool) {
	conditions, changed := slices.Clone(old), false
	for _, texts := range conditionTable {
		want := corev1.NamespaceCondition{
			Type: texts.condition, Status: corev1.ConditionFalse, Reason: texts.okReason, Message: texts.okText, LastTransitionTime: now,
		}
		if bad := texts.badTextOrEmpty(r); bad != "" {
			want.Status, want.Reason, want.Message = corev1.ConditionTrue, cmp.Or(texts.badReason, blockedReason(r)), bad
		}
		i := slices.IndexFunc(conditions, func(c corev1.NamespaceCondition) bool { return c.Type == texts.condition })
		if i < 0 {
			conditions, changed = append(conditions, want), true
			continue
		}
		have := conditions[i]
		if have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
			if have.Reason == want.Reason && have.Message == want.Message {
				continue
			}
		}
		conditions[i], changed = want, true
	}
	return conditions, changed
}

func discoveryText(r report) string {
	switch {
	case r.content.Err == nil:
		return ""
	case len(r.content.Failing) > 0:
		return fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(r.content.Failing), r.content.Err)
	default:
		return r.content.Err.Error()
	}
}

func parsingText(r report) string {
	if r.content.ParseErr == nil {
		return ""
	}
	return r.content.ParseErr.Error()
}

func failureText(r report) string {
	errs := r.errs()
	if len(errs) == 0 {
		return ""
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = conditionText(err)
	}
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(errs), strings.Join(texts, ", "))
}

func remainingText(r report) string {
	var parts []string
	for _, o := range r.withObjects() {
		// The dot after a core type's name is upstream's.
		parts = append(parts, fmt.Sprintf("%s.%s has %d resource instances", o.resource.Resource, o.resource.Group, o.remaining))
	}
	return joinParts("Some resources are remaining: ", parts)
}

func finalizersText(r report) string {
	sums := map[string]int{}
	for _, o := range r.results {
		for f, n := range o.finalizers {
			sums[f] += n
		}
	}
	var parts []string
	for f, n := range sums {
		parts = append(parts, fmt.Sprintf("%s in %d resource instances", f, n))
	}
	return joinParts("Some content in the namespace has finalizers remaining: ", parts)
}

func joinParts(prefix string, parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return prefix + strings.Join(parts, ", ")
}

// remedies holds the reason and advice of our condition by cause. The first present cause gives the reason.
var remedies = []struct{ cause, reason, advice string }{
	{causeError, "RequestsFail", ""},
	{causeDiscovery, "DiscoveryIncomplete", "repair the server of the APIService, or delete the APIService if it is not wanted any more"},
	{causePods, "PodsRemain", "see whether the pods' nodes are there, and who should remove the pods' finalizers if they have any"},
	{causeFinalizers, "FinalizersRemain", "start the controller that is to remove the finalizer, or remove it by hand"},
	{causeContent, "ContentRemains", ""},
	{causeNamespace, "NamespaceFinalizersRemain", "the owner of the namespace's finalizer is to remove it"},
}

func blockedReason(r report) string {
	causes := blockerOf(r).causes
	for _, x := range remedies {
		if slices.Contains(causes, x.cause) {
			return x.reason
		}
	}
	return ""
}

// adviceText returns the blocker with its remedies.
func adviceText(r report) string {
	b := blockerOf(r)
	var advice []string
	unnamed := r.content.Err != nil && len(r.content.Failing) == 0 // no APIService is known to fail
	for _, x := range remedies {
		if x.advice != "" && slices.Contains(b.causes, x.cause) && !(unnamed && x.cause == causeDiscovery) {
			advice = append(advice, x.advice)
		}
	}
	if len(advice) == 0 {
		return b.text
	}
	return b.text + ". What to do: " + strings.Join(advice, "; ")
}
