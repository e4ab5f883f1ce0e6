package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

var (
	resident     = metric{"resident", "MiB"}
	residentPeak = metric{"resident, peak", "MiB"}
	memorySync   = metric{"process start to work", "s"}
	memoryCPU    = metric{"manager CPU", "s"}
)

// ownedPods fills benchNamespace with complete ReplicaSets, so that a manager only watches. The pods are on no node.
func ownedPods(n int) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		sets := make([]*appsv1.ReplicaSet, n/podsPerSet)
		for i := range sets {
			created, err := r.client.AppsV1().ReplicaSets(benchNamespace).Create(ctx, ordinarySet(setName(i)), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create ReplicaSet: %w", err)
			}
			sets[i] = created
		}
		return inParallel(ctx, writers, n, func(ctx context.Context, i int) error {
			return r.createOwnedPod(ctx, sets[i/podsPerSet], i%podsPerSet)
		})
	}
}

// ordinarySet has pods of the size that users' pods have, about 3 KB.
func ordinarySet(name string) *appsv1.ReplicaSet {
	return controlplane.ReplicaSet(benchNamespace, name, podsPerSet, func(set *appsv1.ReplicaSet) {
		template := &set.Spec.Template
		template.Annotations = map[string]string{
			"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "example.com/checksum": fmt.Sprintf("%064d", 1),
		}
		template.Labels["app.kubernetes.io/name"], template.Labels["app.kubernetes.io/part-of"] = name, "shop"
		template.Labels["pod-template-hash"] = "6d4b75cb6d"
		template.Spec.Volumes = []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
			}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		template.Spec.Containers = []corev1.Container{ordinaryContainer("main", 8080), ordinaryContainer("sidecar", 9090)}
	})
}

func ordinaryContainer(name string, port int32) corev1.Container {
	container := corev1.Container{
		Name: name, Image: "registry.example.com/shop/" + name + ":1.2.3", Args: []string{"--config=/etc/shop/config.yaml", "--verbose"},
		Ports: []corev1.ContainerPort{{Name: "http-" + name, ContainerPort: port}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("256Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/shop", ReadOnly: true}, {Name: "scratch", MountPath: "/var/scratch"},
		},
	}
	for i := range 8 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("value of setting %d", i)})
	}
	return container
}

// measureMemory reads memory some time after the manager has begun to work.
func measureMemory(wait time.Duration) func(context.Context, *rig, contestant) ([]reading, error) {
	return func(ctx context.Context, r *rig, c contestant) ([]reading, error) {
		start := time.Now()
		m, err := r.launch(c, managerUser)
		if err != nil {
			return nil, err
		}
		if err := r.awaitWork(ctx); err != nil {
			return nil, err
		}
		synced := time.Since(start).Seconds()
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		used, err := memoryOf(m.Pid())
		if err != nil {
			return nil, err
		}
		cpu, err := cpuSeconds(m.Pid())
		if err != nil {
			return nil, err
		}
		return []reading{{resident, used.resident}, {residentPeak, used.peak}, {memorySync, synced}, {memoryCPU, cpu}},
			r.profileHeap(ctx, m, "memory")
	}
}
