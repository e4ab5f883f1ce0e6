package namespace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionTexts holds the reason and text of a condition without a problem, and returns those of a problem. The text
// is empty if there is no problem.
type conditionTexts struct {
	condition        corev1.NamespaceConditionType
	okReason, okText string
	problem          func(report) (reason, text string)
}

// deletionBlocked is a condition in addition to upstream's five, which show types, counts and finalizers.
// deletionBlocked names objects and remedies.
const deletionBlocked corev1.NamespaceConditionType = "NamespaceDeletionBlocked"

// conditionTable has kube-controller-manager's five conditions, whose texts tools compare, and then ours, in
// the order in which they are added.
var conditionTable = []conditionTexts{
	{corev1.NamespaceDeletionDiscoveryFailure, "ResourcesDiscovered", "All resources successfully discovered", discoveryProblem},
	{corev1.NamespaceDeletionGVParsingFailure, "ParsedGroupVersions", "All legacy kube types successfully parsed", parsingProblem},
	{corev1.NamespaceDeletionContentFailure, "ContentDeleted",
		"All content successfully deleted, may be waiting on finalization", failureProblem},
	{corev1.NamespaceContentRemaining, "ContentRemoved", "All content successfully removed", remainingProblem},
	{corev1.NamespaceFinalizersRemaining, "ContentHasNoFinalizers", "All content-preserving finalizers finished", finalizersProblem},
	{deletionBlocked, "NothingBlocks", "Nothing is known to hold up the deletion", blockedProblem},
}

// withConditions returns the updated conditions and whether any condition changed. Conditions of others stay in
// place. Status True means a problem, and only a new status changes the transition time.
func withConditions(old []corev1.NamespaceCondition, r report, now metav1.Time) ([]corev1.NamespaceCondition, bool) {
	conditions, changed := slices.Clone(old), false
	for _, texts := range conditionTable {
		want := corev1.NamespaceCondition{Type: texts.condition, Status: corev1.ConditionFalse, LastTransitionTime: now,
			Reason: texts.okReason, Message: texts.okText}
		if reason, text := texts.problem(r); text != "" {
			want.Status, want.Reason, want.Message = corev1.ConditionTrue, reason, text
		}
		i := slices.IndexFunc(conditions, func(c corev1.NamespaceCondition) bool { return c.Type == texts.condition })
		if i < 0 {
			conditions, changed = append(conditions, want), true
			continue
		}
		if conditions[i].Status == want.Status {
			want.LastTransitionTime = conditions[i].LastTransitionTime
		}
		changed = changed || conditions[i] != want
		conditions[i] = want
	}
	return conditions, changed
}

func discoveryProblem(r report) (reason, text string) {
	const failed = "DiscoveryFailed"
	if n := len(r.content.Failing); n > 0 {
		return failed, fmt.Sprintf("Discovery failed for some groups, %d failing: %s", n, conditionText(r.content.Err))
	}
	return failed, conditionText(r.content.Err)
}

func parsingProblem(r report) (reason, text string) {
	return "GroupVersionParsingFailed", conditionText(r.content.ParseErr)
}

func failureProblem(r report) (reason, text string) {
	var texts []string
	for _, err := range r.errs() {
		texts = append(texts, conditionText(err))
	}
	return "ContentDeletionFailed", joinParts(fmt.Sprintf("Failed to delete all resource types, %d remaining: ", len(texts)), texts)
}

func remainingProblem(r report) (reason, text string) {
	var parts []string
	for _, o := range r.results {
		if o.remaining > 0 {
			// The dot after a core type's name is upstream's.
			parts = append(parts, fmt.Sprintf("%s.%s has %d resource instances", o.resource.Resource, o.resource.Group, o.remaining))
		}
	}
	return "SomeResourcesRemain", joinParts("Some resources are remaining: ", parts)
}

func finalizersProblem(r report) (reason, text string) {
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
	return "SomeFinalizersRemain", joinParts("Some content in the namespace has finalizers remaining: ", parts)
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

// blockedProblem returns the text of the blockers with remedies.
func blockedProblem(r report) (reason, text string) {
	causes, text := blockersOf(r)
	var advice []string
	unnamed := r.content.Err != nil && len(r.content.Failing) == 0 // no APIService is known to fail
	for _, x := range remedies {
		if !slices.Contains(causes, x.cause) {
			continue
		}
		reason = cmp.Or(reason, x.reason)
		if x.advice != "" && !(unnamed && x.cause == causeDiscovery) {
			advice = append(advice, x.advice)
		}
	}
	if len(advice) > 0 {
		text += ". What to do: " + strings.Join(advice, "; ")
	}
	return reason, text
}
