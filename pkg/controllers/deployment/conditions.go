package deployment

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions are those of a Deployment at a time. Those of other types stay as they are, and all keep their places.
type conditions struct {
	list []appsv1.DeploymentCondition // changed in place
	now  time.Time
}

// get returns a condition without type if there is none.
func (c *conditions) get(conditionType appsv1.DeploymentConditionType) (appsv1.DeploymentCondition, bool) {
	if i := c.index(conditionType); i >= 0 {
		return c.list[i], true
	}
	return appsv1.DeploymentCondition{}, false
}

// set says something. What was said before with this status and reason keeps its times.
func (c *conditions) set(conditionType appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	c.put(c.of(conditionType, status, reason, message))
}

// renew says something that counts as said now, even if it was said before.
func (c *conditions) renew(conditionType appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	said := c.of(conditionType, status, reason, message)
	c.put(said)
	c.list[c.index(conditionType)].LastUpdateTime = said.LastUpdateTime
}

// put puts a condition into its place. The time of a transition changes with the status only, that of the update with the reason too.
func (c *conditions) put(said appsv1.DeploymentCondition) {
	i := c.index(said.Type)
	if i < 0 {
		c.list = append(c.list, said)
		return
	}
	was := c.list[i]
	if was.Status == said.Status {
		said.LastTransitionTime = was.LastTransitionTime
		if was.Reason == said.Reason {
			said.LastUpdateTime = was.LastUpdateTime
		}
	}
	c.list[i] = said
}

func (c *conditions) remove(conditionType appsv1.DeploymentConditionType) {
	c.list = slices.DeleteFunc(c.list, func(has appsv1.DeploymentCondition) bool { return has.Type == conditionType })
	if len(c.list) == 0 {
		c.list = nil
	}
}

// of has the times that the API server would keep: whole seconds.
func (c *conditions) of(conditionType appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	at := metav1.NewTime(c.now.Truncate(time.Second))
	return appsv1.DeploymentCondition{Type: conditionType, Status: status, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at}
}

func (c *conditions) index(conditionType appsv1.DeploymentConditionType) int {
	return slices.IndexFunc(c.list, func(has appsv1.DeploymentCondition) bool { return has.Type == conditionType })
}
