package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// heldDelete has the next delete of a ConfigMap go no further until the test says so.
func heldDelete(t *testing.T, proxy *faults.Proxy, ns, name string) (*faults.Gate, *faults.Rule) {
	t.Helper()
	gate := faults.NewGate()
	m := faults.On("delete", configMaps.Resource)
	m.Namespace, m.Name = ns, name
	return gate, proxy.Inject(m, faults.Hold(gate), faults.Next(1))
}

// An object changes after it was decided about and before the API server has the delete: what it is then counts.
func testObjectChanges(t *testing.T, c *collector, proxy *faults.Proxy) {
	for _, tt := range []struct {
		name  string
		stays bool
		do    func(t *testing.T, ns string, o, other thing) thing // returns what has to stay, or to go
	}{
		{"it gets an owner that lives", true, func(t *testing.T, _ string, o, other thing) thing {
			o.patch(t, map[string]any{"ownerReferences": []any{other.reference()}})
			return o
		}},
		{"it is written to in what does not count", false, func(t *testing.T, _ string, o, _ thing) thing {
			o.patch(t, map[string]any{"annotations": map[string]any{"a": "b"}})
			return o
		}},
		{"another takes its name", true, func(t *testing.T, ns string, o, other thing) thing {
			o.delete(t, metav1.DeletePropagationBackground)
			return create(t, configMaps, ns, o.GetName(), ownedBy(other))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := cluster.Namespace(t)
			owner, other := create(t, secrets, ns, "owner"), create(t, secrets, ns, "other")
			o := create(t, configMaps, ns, "object", ownedBy(owner))
			settled(t, ns)
			gate, rule := heldDelete(t, proxy, ns, o.GetName())
			owner.delete(t, metav1.DeletePropagationBackground)
			held := gate.Next(t)
			o = tt.do(t, ns, o, other)
			held.Release()
			if !tt.stays {
				gone(t, soon, o)
			}
			settled(t, ns)
			rule.Remove()
			if tt.stays {
				alive(t, o, other)
			}
			if n := len(c.writes(t, controlplane.ByNamespace(ns), controlplane.ByName("object"), controlplane.ByCode(409))); n == 0 {
				t.Error("no delete was answered with a conflict")
			}
		})
	}
}

// A ring whose members are all deleted in the foreground at once, and an object that blocks itself, come free.
func testARingThatIsDeletedAtOnce(t *testing.T, ns string) {
	settled(t, ns)
	first := create(t, configMaps, ns, "first")
	second := create(t, configMaps, ns, "second", blockedBy(first))
	third := create(t, secrets, ns, "third", blockedBy(second))
	self := create(t, configMaps, ns, "self")
	for _, o := range []struct{ of, to thing }{{first, third}, {self, self}} {
		ref := o.to.reference()
		ref.BlockOwnerDeletion = new(true)
		o.of.patch(t, map[string]any{"ownerReferences": []any{ref}})
	}
	begun := time.Now()
	for _, o := range []thing{first, second, third, self} {
		o.delete(t, metav1.DeletePropagationForeground)
	}
	gone(t, soon, first, second, third, self)
	t.Logf("gone after %v", time.Since(begun).Round(time.Millisecond))
}

// Objects of an ignored type stay, whatever becomes of their owners. As owners they are asked for.
func TestIgnoredTypes(t *testing.T) {
	ns := cluster.Namespace(t)
	c := start(t, nil, "--garbage-collector-ignored-resources=configmaps")
	owner := create(t, secrets, ns, "owner")
	stays := create(t, configMaps, ns, "stays", ownedBy(owner))
	owner.delete(t, metav1.DeletePropagationBackground)
	ignored, lives := create(t, configMaps, ns, "ignored"), create(t, configMaps, ns, "lives")
	ref := ignored.reference()
	ignored.delete(t, metav1.DeletePropagationBackground)
	leaves, kept := create(t, secrets, ns, "leaves", refers(ref)), create(t, secrets, ns, "kept", ownedBy(lives))
	gone(t, soon, leaves)
	settled(t, ns)
	alive(t, stays, kept, lives)
	if got := cluster.AuditLog(t, controlplane.ByUser(c.user), controlplane.ByVerb("watch", "list"), controlplane.ByResource(configMaps.Resource)); len(got) > 0 {
		t.Errorf("an ignored type was asked for:\n%v", got)
	}
}

// collectLeftovers has what other tests have left collected. The probe refers to an owner that nobody has ever seen, which takes the longest to prove.
func collectLeftovers(t *testing.T, ns string) {
	t.Helper()
	c := start(t, nil)
	probe := create(t, secrets, ns, "probe-"+rand.String(6), refers(metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never", UID: "never"}))
	gone(t, soon, probe)
	settled(t, ns)
	c.Stop(t)
}

// A dry run needs the rights to read only, and sends nothing but reads.
func TestDryRunWritesNothing(t *testing.T) {
	ns := cluster.Namespace(t)
	collectLeftovers(t, ns)
	account := "gc-observer-" + rand.String(6)
	user := controlplane.ServiceAccount(account)
	client := cluster.Client(t).RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}}
	_, err := client.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	check(t, err)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	_, err = client.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	check(t, err)
	observer := controlplane.ClientFor(t, cluster.ManagerConfig(account, "no controller"))
	controlplane.Eventually(t, soon, func(ctx context.Context) error { // the authorizer learns of them a moment later
		_, err := observer.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	admin := cluster.Kubeconfig(t, "admin", "system:masters")
	c := &collector{user: user, port: controlplane.FreePort(t)}
	c.Manager = controlplane.StartManager(t, command.New(app.Controllers()),
		"--kubeconfig="+cluster.ManagerKubeconfig(t, account, "no controller"), "--controllers=garbagecollector", "--leader-elect=false",
		fmt.Sprintf("--secure-port=%d", c.port), "--bind-address=127.0.0.1", "--authentication-kubeconfig="+admin, "--authorization-kubeconfig="+admin,
		"--garbage-collector-dry-run")
	foreign := create(t, configMaps, cluster.Namespace(t), "foreign")
	background, foreground, orphan := create(t, rcs, ns, "background"), create(t, rcs, ns, "foreground"), create(t, rcs, ns, "orphan")
	stay := []thing{
		create(t, pods, ns, "of-background", ownedBy(background)), create(t, pods, ns, "of-foreground", blockedBy(foreground)),
		create(t, pods, ns, "of-orphan", ownedBy(orphan)), create(t, pods, ns, "of-foreign", ownedBy(foreign)),
	}
	background.delete(t, metav1.DeletePropagationBackground)
	foreground.delete(t, metav1.DeletePropagationForeground)
	orphan.delete(t, metav1.DeletePropagationOrphan)
	controlplane.Eventually(t, soon, func(context.Context) error {
		for request, least := range map[string]float64{"delete": 3, "orphan": 1} {
			if got := c.metric(t, "garbagecollector_dry_run_request_total", `request="`+request+`"`); got < least {
				return fmt.Errorf("%v requests %s were counted, want at least %v", got, request, least)
			}
		}
		return nil
	})
	for n := range 3 { // events about dependents wake their owners
		for _, o := range stay {
			o.patch(t, map[string]any{"finalizers": []string{fmt.Sprint("x/y", n)}})
		}
	}
	for _, o := range stay {
		o.letGo(t)
	}
	alive(t, stay...)
	written := cluster.AuditLog(t, controlplane.ByUser(user), controlplane.Writes)
	if got := slices.DeleteFunc(written, func(e auditv1.Event) bool { return e.ObjectRef.APIGroup == "authorization.k8s.io" }); len(got) > 0 { // what it may is asked for by a create
		t.Errorf("written was\n%v", got)
	}
	for _, o := range []thing{foreground, orphan} {
		o.letGo(t)
	}
}

// kube-controller-manager's own collector runs beside ours: together they do what either would.
func TestBesideTheCollectorOfKubeControllerManager(t *testing.T) {
	ns := cluster.Namespace(t)
	start(t, nil)
	upstream, err := controlplane.Binary("kube-controller-manager")
	check(t, err)
	const theirs = "system:kube-controller-manager"
	controlplane.StartProgram(t, upstream, "--kubeconfig="+cluster.Kubeconfig(t, theirs, "system:masters"), "--controllers=garbage-collector-controller",
		"--leader-elect=false", "--secure-port=0")
	background, foreground, orphan := create(t, rcs, ns, "background"), create(t, rcs, ns, "foreground"), create(t, rcs, ns, "orphan")
	lives := create(t, rcs, ns, "lives")
	var leave, stay, shared []thing
	for n := range 20 {
		leave = append(leave, create(t, pods, ns, fmt.Sprint("b-", n), ownedBy(background)), create(t, configMaps, ns, fmt.Sprint("f-", n), blockedBy(foreground)))
		stay = append(stay, create(t, pods, ns, fmt.Sprint("o-", n), ownedBy(orphan)))
		shared = append(shared, create(t, secrets, ns, fmt.Sprint("s-", n), ownedBy(background, lives)))
	}
	// It loses orphans that it has not seen: the pods, which it has when it reads one that was made after them.
	last := create(t, pods, ns, "last", refers(metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: "never", UID: "never"}))
	controlplane.Eventually(t, 2*soon, func(context.Context) error {
		if len(cluster.AuditLog(t, controlplane.ByUser(theirs), controlplane.ByVerb("get"), controlplane.ByNamespace(ns), controlplane.ByName(last.GetName()))) == 0 {
			return errors.New("it has not looked at the last pod yet")
		}
		return nil
	})
	background.delete(t, metav1.DeletePropagationBackground)
	foreground.delete(t, metav1.DeletePropagationForeground)
	orphan.delete(t, metav1.DeletePropagationOrphan)
	gone(t, 2*soon, append(leave, background, foreground, orphan)...)
	settled(t, ns)
	alive(t, append(append(stay, shared...), lives)...)
	for _, o := range stay {
		owners(t, soon, o)
	}
	for _, o := range shared {
		owners(t, soon, o, lives)
	}
}
