package controlplane

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Webhook selects the requests that an admission webhook receives.
type Webhook struct {
	Operations []string // such as CREATE or DELETE; nil: all
	APIGroup   string   // "": the core group
	Resource   string   // plural, with subresource: pods, nodes/status
	Namespace  string   // "": all
	Name       string   // name of the affected object; other objects are admitted at once; "": all
	Users      string   // prefix of the affected users; "": all

	TimeoutSeconds int32 // 1 to 30; 0: 10, the API server's default
	Ignore         bool  // failurePolicy Ignore
}

// Admission is a running webhook, which admits all requests by default. A setting holds for later requests.
type Admission struct {
	hook   Webhook
	client kubernetes.Interface
	server *httptest.Server
	name   string
	over   chan struct{}

	lock     sync.Mutex
	answer   admissionAnswer
	changed  chan struct{}
	requests int
	probed   int
	stopped  bool
}

type admissionAnswer struct {
	after  time.Duration
	hang   bool
	broken bool   // HTTP 500
	denied string // message of the refusal; "": allowed
}

const probeLabel = "controlplane.test/webhook"

// Webhook registers an admission webhook in this process until the test ends. Webhook returns when every API server
// calls the webhook.
func (c *Cluster) Webhook(t testing.TB, hook Webhook) *Admission {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	a, err := c.StartWebhook(ctx, hook)
	Must(t, err)
	t.Cleanup(func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// StartWebhook is [Cluster.Webhook] for programs, which call Stop. ctx bounds the start.
func (c *Cluster) StartWebhook(ctx context.Context, hook Webhook) (*Admission, error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	a := &Admission{hook: hook, client: client, over: make(chan struct{}), changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/admit", a.serveAdmission)
	mux.HandleFunc("/probe", a.serveProbe)
	a.server = httptest.NewTLSServer(mux)
	a.name = "webhook-" + a.server.Listener.Addr().String()[len("127.0.0.1:"):]

	err = a.createConfiguration(ctx)
	if err == nil {
		err = a.awaitCalls(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start webhook: %w", err), a.Stop())
	}
	return a, nil
}

// Stop removes the webhook and admits hanging requests. A second call does nothing.
func (a *Admission) Stop() error {
	a.lock.Lock()
	again := a.stopped
	a.stopped = true
	a.lock.Unlock()
	if again {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := a.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, a.name, metav1.DeleteOptions{})
	close(a.over)
	a.server.CloseClientConnections()
	a.server.Close()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("stop webhook: %w", err)
	}
	return nil
}

// Delay admits every request after d.
func (a *Admission) Delay(d time.Duration) { a.setAnswer(admissionAnswer{after: d}) }

// Hang lets requests wait until the next setting, which admits them.
func (a *Admission) Hang() { a.setAnswer(admissionAnswer{hang: true}) }

// Break returns HTTP 500 to every request.
func (a *Admission) Break() { a.setAnswer(admissionAnswer{broken: true}) }

// Deny rejects every request with the message.
func (a *Admission) Deny(message string) { a.setAnswer(admissionAnswer{denied: message}) }

// Heal admits all requests at once.
func (a *Admission) Heal() { a.setAnswer(admissionAnswer{}) }

// Requests returns the number of requests that the webhook has received for the selected objects.
func (a *Admission) Requests() int {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.requests
}

func (a *Admission) setAnswer(answer admissionAnswer) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.answer = answer
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *Admission) serveAdmission(w http.ResponseWriter, r *http.Request) {
	writeReview(w, r, func(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		answer, changed := a.answerFor(request)
		if !answer.waitTurn(r.Context(), changed, a.over) {
			return nil, errors.New("the API server has given up")
		}
		switch {
		case answer.broken:
			return nil, errors.New("the webhook is broken")
		case answer.denied != "":
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: answer.denied}}, nil
		}
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	})
}

func (a *Admission) answerFor(request *admissionv1.AdmissionRequest) (answer admissionAnswer, changed <-chan struct{}) {
	a.lock.Lock()
	defer a.lock.Unlock()
	name := request.Name
	if name == "" { // as for each object of a deletecollection
		var old metav1.PartialObjectMetadata
		_ = json.Unmarshal(request.OldObject.Raw, &old) // without an object the name is empty
		name = old.Name
	}
	if a.hook.Name != "" && a.hook.Name != name {
		return admissionAnswer{}, nil
	}
	a.requests++
	return a.answer, a.changed
}

func (answer admissionAnswer) waitTurn(ctx context.Context, changed, over <-chan struct{}) bool {
	if !answer.hang && answer.after == 0 {
		return true
	}
	var due <-chan time.Time
	if !answer.hang {
		timer := time.NewTimer(answer.after)
		defer timer.Stop()
		due, changed = timer.C, nil
	}
	select {
	case <-due:
	case <-changed:
	case <-over:
	case <-ctx.Done():
		return false
	}
	return true
}

func (a *Admission) serveProbe(w http.ResponseWriter, r *http.Request) {
	writeReview(w, r, func(*admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		a.lock.Lock()
		defer a.lock.Unlock()
		a.probed++
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	})
}

func writeReview(w http.ResponseWriter, r *http.Request, decide func(*admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("decode review: %v", err), http.StatusBadRequest)
		return
	}
	response, err := decide(review.Request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	response.UID = review.Request.UID
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // fails if the API server has given up
}

func (a *Admission) createConfiguration(ctx context.Context) error {
	asked := a.newWebhook("admit", a.hook.APIGroup, a.hook.Resource)
	if a.hook.Operations != nil {
		asked.Rules[0].Operations = nil
		for _, operation := range a.hook.Operations {
			asked.Rules[0].Operations = append(asked.Rules[0].Operations, admissionregistrationv1.OperationType(operation))
		}
	}
	if a.hook.Ignore {
		asked.FailurePolicy = new(admissionregistrationv1.Ignore)
	}
	if a.hook.TimeoutSeconds != 0 {
		asked.TimeoutSeconds = &a.hook.TimeoutSeconds
	}
	if a.hook.Namespace != "" {
		asked.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: a.hook.Namespace}}
	}
	if a.hook.Users != "" {
		asked.MatchConditions = []admissionregistrationv1.MatchCondition{{
			Name: "users", Expression: fmt.Sprintf("request.userInfo.username.startsWith(%q)", a.hook.Users),
		}}
	}
	probe := a.newWebhook("probe", "", "configmaps")
	probe.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{probeLabel: a.name}}

	_, err := a.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: a.name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{asked, probe},
	}, metav1.CreateOptions{})
	return err
}

func (a *Admission) newWebhook(path, group, resource string) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: path + ".controlplane.test",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL:      new(a.server.URL + "/" + path),
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw}),
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}, Scope: new(admissionregistrationv1.AllScopes),
			},
		}},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// awaitCalls returns when every API server of the cluster calls the webhook.
func (a *Admission) awaitCalls(ctx context.Context, c *Cluster) error {
	servers := []*rest.Config{c.Config()}
	if c.second != nil {
		servers = append(servers, c.AtSecond(c.Config()))
	}
	for _, cfg := range servers {
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		before := a.probeCount()
		if err := pollUntil(ctx, func(ctx context.Context) error {
			_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "webhook-probe-", Labels: map[string]string{probeLabel: a.name}}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && a.probeCount() == before {
				err = errors.New("the API server does not call the webhook yet")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (a *Admission) probeCount() int {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.probed
}
