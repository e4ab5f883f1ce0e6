package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	firstPod = "process start to first pod"
	takeOver = "signal to first pod of the other"

	idleTime   = 15 * time.Second
	podsPerSet = 200
	scaleSets  = 5
	// workInterval is the interval of pod creations, and so the resolution of hand-over times.
	workInterval = 20 * time.Millisecond
	standbyWarm  = 5 * time.Second
)

func setName(i int) string { return fmt.Sprintf("set-%d", i) }

func createOneSet(ctx context.Context, r *rig) {
	r.create(ctx, controlplane.ReplicaSet(benchNamespace, setName(0), 1))
}

func measureStart(ctx context.Context, r *rig, c contestant) []reading {
	pods, start := r.watchFromNow(ctx, &corev1.PodList{}, benchNamespace), time.Now()
	m := r.launch(c, managerUser)
	end := awaitEvents(ctx, pods, watch.Added, 1)
	must.Pause(ctx, idleTime)
	return []reading{{firstPod, "s", end.Sub(start).Seconds()}, {resident, "MiB", residentMiB(m)}}
}

// measureScale counts processor time until the statuses of all sets are right, wall time until the pods are.
func measureScale(ctx context.Context, r *rig, c contestant) []reading {
	m := r.launchWorking(ctx, c)
	pods := r.watchFromNow(ctx, &corev1.PodList{}, benchNamespace)
	return r.measureEffort(m, func() time.Time {
		for i := range scaleSets {
			r.create(ctx, controlplane.ReplicaSet(benchNamespace, setName(i), podsPerSet))
		}
		end := awaitEvents(ctx, pods, watch.Added, scaleSets*podsPerSet)
		must.Poll(ctx, pollInterval, func() bool {
			var sets appsv1.ReplicaSetList
			must.Succeed(r.client.List(ctx, &sets, client.InNamespace(benchNamespace)))
			for _, set := range sets.Items {
				if set.Status.Replicas != podsPerSet {
					return false
				}
			}
			return true
		})
		return end
	}).readings("1,000 pods created")
}

func measureHandOver(ctx context.Context, r *rig, c contestant) []reading {
	return measureTakeOver(ctx, r, c, syscall.SIGTERM)
}

func measureCrash(ctx context.Context, r *rig, c contestant) []reading {
	return measureTakeOver(ctx, r, c, syscall.SIGKILL)
}

// measureTakeOver sends the signal to the leader of two while a ReplicaSet grows.
func measureTakeOver(ctx context.Context, r *rig, c contestant, signal os.Signal) []reading {
	leader := r.launch(c, leaderUser, "--leader-elect=true")
	r.awaitWork(ctx)
	r.launch(c, standbyUser, "--leader-elect=true")
	set := controlplane.ReplicaSet(benchNamespace, "growing", 0)
	r.create(ctx, set)
	must.Pause(ctx, standbyWarm)

	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	go func() {
		err := must.Catch(func() {
			for replicas := 1; ; replicas++ {
				r.patch(working, set.DeepCopy(), fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
				must.Pause(working, workInterval)
			}
		})
		if working.Err() == nil {
			r.abort(err)
		}
	}()
	must.Pause(ctx, time.Second)
	sent := time.Now()
	leader.sendSignal(signal)
	var first time.Time
	must.Poll(ctx, pollInterval, func() bool {
		made := must.Get(r.cluster.ReadAuditLog(controlplane.ByUser(standbyUser), controlplane.ByVerb("create"),
			controlplane.ByResource("pods"), controlplane.ByCode(201)))
		if len(made) > 0 {
			first = made[0].StageTimestamp.Time
		}
		return len(made) > 0
	})
	return []reading{{takeOver, "s", first.Sub(sent).Seconds()}}
}

// createOwnedPods fills benchNamespace with complete ReplicaSets, so that a manager only watches. The pods are on no
// node.
func createOwnedPods(ctx context.Context, r *rig) {
	sets := make([]*appsv1.ReplicaSet, 100)
	for i := range sets {
		sets[i] = ordinarySet(setName(i))
		r.create(ctx, sets[i])
	}
	must.ForEach(ctx, writers, len(sets)*podsPerSet, func(ctx context.Context, i int) {
		set := sets[i/podsPerSet]
		r.create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: benchNamespace, Name: fmt.Sprintf("%s-%d", set.Name, i%podsPerSet), Labels: set.Spec.Template.Labels, Annotations: set.Spec.Template.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			},
			Spec: set.Spec.Template.Spec,
		})
	})
}

// createIdleSets creates ReplicaSets without pods, as a Deployment keeps them in its history. All statuses are current,
// so that a manager only watches.
func createIdleSets(ctx context.Context, r *rig) {
	must.ForEach(ctx, writers, 10_000, func(ctx context.Context, i int) {
		set := ordinarySet(setName(i))
		set.Spec.Replicas = new(int32)
		r.create(ctx, set)
		set.Status = appsv1.ReplicaSetStatus{ObservedGeneration: set.Generation, TerminatingReplicas: new(int32)}
		must.Succeed(r.client.Status().Update(ctx, set))
	})
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
		config := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		template.Spec.Volumes = []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &config}},
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
func measureMemory(wait time.Duration) func(context.Context, *rig, contestant) []reading {
	return func(ctx context.Context, r *rig, c contestant) []reading {
		start := time.Now()
		m := r.launch(c, managerUser)
		r.awaitWork(ctx)
		synced := time.Since(start).Seconds()
		must.Pause(ctx, wait)
		return []reading{{resident, "MiB", residentMiB(m)}, {"process start to work", "s", synced}, {managerCPU, "s", cpuSeconds(m.Pid())}}
	}
}
