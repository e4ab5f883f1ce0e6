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

func createConfigMap(client kubernetes.Interface, ns, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := time.Now()
	_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return time.Since(start), err
}

func TestWebhookFaults(t *testing.T) {
	ns, client := cluster.Namespace(t), cluster.Client(t)
	hook := cluster.Webhook(t, Webhook{Operations: []string{"CREATE"}, Resource: "configmaps", Namespace: ns, TimeoutSeconds: 5})
	for i, server := range []kubernetes.Interface{client, ClientFor(t, cluster.AtSecond(cluster.Config()))} {
		if _, err := createConfigMap(server, ns, fmt.Sprint("at-once-", i)); err != nil || hook.Requests() != i+1 {
			t.Errorf("healthy webhook, API server %d: %v, %d requests so far", i, err, hook.Requests())
		}
	}
	for i, tt := range []struct {
		set   func()
		wants string // error
		least time.Duration
	}{
		{func() { hook.Deny("not today") }, "not today", 0},
		{hook.Break, "failed calling webhook", 0},
		{func() { hook.Delay(time.Second) }, "", time.Second},
		{hook.Hang, "failed calling webhook", 5 * time.Second},
		{hook.Heal, "", 0},
	} {
		tt.set()
		took, err := createConfigMap(client, ns, fmt.Sprint("later-", i))
		if took < tt.least || (err != nil) != (tt.wants != "") || err != nil && !strings.Contains(err.Error(), tt.wants) {
			t.Errorf("setting %d: took %v, error %v; want %v and %q", i, took, err, tt.least, tt.wants)
		}
	}
	hook.Deny("not today")
	if _, err := createConfigMap(client, cluster.Namespace(t), "free"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
}

func TestIgnoredSlowWebhookAllowsAfterTimeout(t *testing.T) {
	ns := cluster.Namespace(t)
	hook := cluster.Webhook(t, Webhook{Resource: "configmaps", Namespace: ns, Name: "slow", TimeoutSeconds: 2, Ignore: true})
	hook.Hang()
	if took, err := createConfigMap(cluster.Client(t), ns, "slow"); err != nil || took < 2*time.Second {
		t.Errorf("took %v, error %v, want success after 2 s", took, err)
	}
	if _, err := createConfigMap(cluster.Client(t), ns, "other"); err != nil || hook.Requests() != 1 {
		t.Errorf("object of another name: %v, %d requests, want 1", err, hook.Requests())
	}
}
