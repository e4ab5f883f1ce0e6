package deployment

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions edits the conditions of a Deployment. Other types stay, and the order stays.
type conditions struct {
	list []appsv1.DeploymentCondition // changed in place
	now  time.Time
}

func (c *conditions) get(conditionType appsv1.DeploymentConditionType) (appsv1.DeploymentCondition, bool) {
	if i := c.index(conditionType); i >= 0 {
		return c.list[i], true
	}
	return appsv1.DeploymentCondition{}, false
}

// set sets a condition. Equal status and reason keep the times.
func (c *conditions) set(conditionType appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	now := c.seconds()
	c.put(appsv1.DeploymentCondition{Type: conditionType, Status: status, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now})
}

// renewProgressing sets Progressing to True, and the update time of the condition to now.
func (c *conditions) renewProgressing(reason, message string) {
	c.set(appsv1.DeploymentProgressing, corev1.ConditionTrue, reason, message)
	c.list[c.index(appsv1.DeploymentProgressing)].LastUpdateTime = c.seconds()
}

// seconds returns the time in whole seconds, which the API server keeps.
func (c *conditions) seconds() metav1.Time { return metav1.NewTime(c.now.Truncate(time.Second)) }

// put keeps the transition time of an equal status, and the update time of an equal status and reason.
func (c *conditions) put(condition appsv1.DeploymentCondition) {
	i := c.index(condition.Type)
	if i < 0 {
		c.list = append(c.list, condition)
		return
	}
	was := c.list[i]
	if was.Status == condition.Status {
		condition.LastTransitionTime = was.LastTransitionTime
		if was.Reason == condition.Reason {
			condition.LastUpdateTime = was.LastUpdateTime
		}
	}
	c.list[i] = condition
}

func (c *conditions) remove(conditionType appsv1.DeploymentConditionType) {
	c.list = slices.DeleteFunc(c.list, func(has appsv1.DeploymentCondition) bool { return has.Type == conditionType })
}

func (c *conditions) index(conditionType appsv1.DeploymentConditionType) int {
	return slices.IndexFunc(c.list, func(has appsv1.DeploymentCondition) bool { return has.Type == conditionType })
}
