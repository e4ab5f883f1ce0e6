package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func createConfigMap(client kubernetes.Interface, ns, name string) (*corev1.ConfigMap, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := time.Now()
	made, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return made, time.Since(start), err
}

func TestWebhookDoesAsItIsTold(t *testing.T) {
	ns := cluster.Namespace(t)
	client, second := cluster.Client(t), ClientFor(t, cluster.AtSecond(cluster.Config()))
	hook := cluster.Webhook(t, Webhook{Operations: []string{"CREATE"}, Resource: "configmaps", Namespace: ns, TimeoutSeconds: 30})

	for i, server := range []kubernetes.Interface{client, second} {
		if _, _, err := createConfigMap(server, ns, fmt.Sprint("at-once-", i)); err != nil {
			t.Errorf("healthy webhook, API server %d: %v", i, err)
		}
		if got := hook.Requests(); got != i+1 {
			t.Errorf("API server %d: %d requests so far, want %d", i, got, i+1)
		}
	}
	hook.Deny("not today")
	if _, _, err := createConfigMap(client, ns, "denied"); err == nil || !strings.Contains(err.Error(), "not today") {
		t.Errorf("denied: error %v, want the webhook's message", err)
	}
	hook.Break()
	if _, _, err := createConfigMap(client, ns, "broken"); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("broken webhook: error %v, want that of a failed call", err)
	}
	hook.Delay(time.Second)
	if _, took, err := createConfigMap(client, ns, "delayed"); err != nil || took < time.Second {
		t.Errorf("delayed: took %v, error %v, want at least 1 s", took, err)
	}
	hook.Deny("not today")
	elsewhere := cluster.Namespace(t)
	if _, _, err := createConfigMap(client, elsewhere, "free"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	hook.Heal()
	if _, _, err := createConfigMap(client, ns, "healed"); err != nil {
		t.Errorf("healed webhook: %v", err)
	}
	cluster.Webhook(t, Webhook{Operations: []string{"CREATE"}, Resource: "configmaps", Namespace: elsewhere, TimeoutSeconds: 2}).Hang()
	if _, took, err := createConfigMap(client, elsewhere, "hangs"); err == nil || took < 2*time.Second {
		t.Errorf("webhook that hangs: took %v, error %v, want an error after its timeout of 2 s", took, err)
	}
}

func TestIgnoredWebhookThatHangsLetsEverythingThroughLate(t *testing.T) {
	ns := cluster.Namespace(t)
	hook := cluster.Webhook(t, Webhook{Resource: "configmaps", Namespace: ns, Name: "slow", TimeoutSeconds: 5, Ignore: true})
	hook.Hang()
	if _, took, err := createConfigMap(cluster.Client(t), ns, "slow"); err != nil || took < 5*time.Second {
		t.Errorf("took %v, error %v, want success after 5 s", took, err)
	}
	if _, _, err := createConfigMap(cluster.Client(t), ns, "other"); err != nil {
		t.Errorf("object of another name: %v", err)
	}
	if got := hook.Requests(); got != 1 {
		t.Errorf("%d requests suffered, want 1", got)
	}
}
