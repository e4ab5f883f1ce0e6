package namespace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionTexts are the reason and message of a condition while nothing is wrong, and the reason while something is.
type conditionTexts struct {
	condition        corev1.NamespaceConditionType
	okReason, okText string
	badReason        string // empty: it depends on what blocks
	badTextOrEmpty   func(report) string
}

// deletionBlocked is the one condition that is ours. The other five give types, counts and finalizers; this one names objects
// and says what to do, to those who see conditions only: kubectl describe namespace shows no Events.
const deletionBlocked corev1.NamespaceConditionType = "NamespaceDeletionBlocked"

// conditionTable has the conditions in the order in which they are added: kube-controller-manager's five, whose texts tools compare,
// then ours.
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

// withConditions returns the conditions with those of the table brought up to date, and whether any of them changed. Foreign ones stay
// as and where they are. A condition's status True means a problem; its transition time moves with the status only.
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
		texts[i] = forUsers(err)
	}
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(errs), strings.Join(texts, ", "))
}

func remainingText(r report) string {
	var parts []string
	for _, o := range r.held() {
		// The dot after a core type's name is upstream's.
		parts = append(parts, fmt.Sprintf("%s.%s has %d resource instances", o.resource.Resource, o.resource.Group, o.remaining))
	}
	return listed("Some resources are remaining: ", parts)
}

func finalizersText(r report) string {
	sums := map[string]int{}
	for _, o := range r.outcomes {
		for f, n := range o.finalizers {
			sums[f] += n
		}
	}
	var parts []string
	for f, n := range sums {
		parts = append(parts, fmt.Sprintf("%s in %d resource instances", f, n))
	}
	return listed("Some content in the namespace has finalizers remaining: ", parts)
}

func listed(prefix string, parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return prefix + strings.Join(parts, ", ")
}

// remedies are, by cause, the reason of our condition and what can be done. The first one that is to blame gives the reason.
var remedies = []struct{ cause, reason, advice string }{
	{causeError, "RequestsFail", ""}, // the error says
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

// adviceText is what blocks and what to do about it.
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
