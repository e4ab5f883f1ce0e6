# Everything that users, developers and CI run. `make help` lists the targets.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO      ?= go
VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo v0.0.0-dev)
LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(VERSION)

# More flags for every go test, such as -v.
GOTESTFLAGS ?=

# Tests in these packages start a control plane; those of all other packages are unit tests.
# The slowest come first, so that the others run beside them.
SLOW        := $(addprefix ./test/integration/,garbagecollector leadership deploy node namespace deployment)
INTEGRATION := $(SLOW) ./test/controlplane/... ./test/integration/... ./examples/own-controller/... ./examples/controller-runtime/... ./examples/envtest/...
UNIT         = ./pkg/controllers/node $$($(GO) list ./cmd/... ./pkg/... ./internal/... ./kcmtest/... ./test/... | grep -vE '/test/(controlplane|integration|mutants|prose)(/|$$)|/pkg/controllers/node$$')

# Programs of the control plane are built once from the modules that pin them under hack/. Each program in bin/ is its
# own stamp. A folder in KUBEBUILDER_ASSETS replaces the programs it holds, and always etcd and kube-apiserver.
given    = etcd kube-apiserver $(notdir $(wildcard $(KUBEBUILDER_ASSETS)/*))
programs = $(addprefix bin/,$(if $(KUBEBUILDER_ASSETS),$(filter-out $(given),$(1)),$(1))) $(if $(KUBEBUILDER_ASSETS),fitting-assets)

##@ Everyday

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/controller-manager
	CGO_ENABLED=0 GOWORK=off $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/controller-manager ./cmd/controller-manager

# The manifests of deploy/ use this name. No runtime looks for the host localhost in a registry.
IMAGE ?= localhost/controller-manager:v0.0.0-dev

.PHONY: image
image: build ## Build the container image (needs buildah)
	buildah build -f deploy/Containerfile -t $(IMAGE) bin

.PHONY: run
run: $(call programs,etcd kube-apiserver) build ## Show scenes on a control plane of its own; Ctrl-C ends all
	$(GO) build -o bin/test/demo ./test/demo
	bin/test/demo

.PHONY: bench
bench: $(call programs,etcd kube-apiserver kube-controller-manager) build ## Compare with kube-controller-manager (1 hour)
	$(GO) run ./test/bench

.PHONY: clean
clean: ## Remove bin/
	rm -rf bin

##@ Checks

.PHONY: test
test: test-unit test-integration ## Run unit and integration tests (10 minutes)

# Go keeps the results of packages that have not changed.
.PHONY: test-unit
test-unit: need-cc ## Run unit tests with the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 8m $(GOTESTFLAGS) $(UNIT)
	cd kcmtest/process && CGO_ENABLED=1 GOWORK=off $(GO) test -race $(GOTESTFLAGS) .

# Three packages at a time: each has a control plane, and most of them wait most of the time.
.PHONY: test-integration
test-integration: controlplane ## Run tests on a real API server
	$(GO) test -count=1 -p 3 -timeout 8m $(GOTESTFLAGS) $(INTEGRATION)

.PHONY: test-long
test-long: need-cc controlplane ## Run all tests with the race detector, and chaos (20 minutes)
	CGO_ENABLED=1 LONG=1 $(GO) test -race -shuffle=on -timeout 20m $(GOTESTFLAGS) $(UNIT)
	CGO_ENABLED=1 LONG=1 $(GO) test -race -shuffle=on -count=1 -p 3 -timeout 25m $(GOTESTFLAGS) $(INTEGRATION)
	CGO_ENABLED=1 $(GO) build -race -o bin/test/controller-manager-chaos ./cmd/controller-manager
	$(foreach seed,1 2 3,$(GO) run ./test/chaos -manager bin/test/controller-manager-chaos -seed $(seed) -for 2m &&) true

.PHONY: mutants
mutants: ## Break the code and expect tests to fail; WORDS=lease selects
	$(GO) run ./test/mutants $(WORDS)

.PHONY: lint
lint: bin/staticcheck ## Check formatting, wording and code
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) test -count=1 ./test/prose
	GOWORK=off $(GO) vet ./...
	$(GO) vet ./test/... ./examples/own-controller/... ./examples/controller-runtime/... ./examples/envtest/...
	cd kcmtest/process && GOWORK=off $(GO) vet . && GOOS=darwin GOWORK=off $(GO) vet . && GOOS=windows GOWORK=off $(GO) vet .
	bin/staticcheck ./... ./test/... ./examples/own-controller/... ./examples/controller-runtime/... ./examples/envtest/...

# The race detector is C code, so go test -race links with cgo.
.PHONY: need-cc
need-cc:
	@command -v "$$($(GO) env CC)" >/dev/null || { \
		echo "The race detector needs a C compiler and none was found."; \
		echo "Install gcc or clang (Debian: apt-get install gcc libc6-dev), or set CC."; exit 1; }

##@ Control plane

.PHONY: controlplane
controlplane: $(call programs,etcd kube-apiserver kube-controller-manager) bin/kubectl bin/promtool ## Build etcd, kube-apiserver, kubectl and promtool
	@echo "control plane: $(or $(KUBEBUILDER_ASSETS),bin)"

# Programs in KUBEBUILDER_ASSETS must be of our Kubernetes version.
.PHONY: fitting-assets
fitting-assets:
	@hack/check-assets.sh '$(KUBEBUILDER_ASSETS)' $(KUBERNETES_VERSION)

KUBERNETES_VERSION = $(shell awk '$$1 == "k8s.io/kubernetes" {print $$2}' hack/kubernetes/go.mod)
kubernetes_ldflags = -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)
pins               = $(addprefix hack/$(1)/,go.mod go.sum)

bin/etcd: $(call pins,etcd)
	@hack/build.sh $@ hack/etcd go.etcd.io/etcd/server/v3 '-s -w' '1 minute'

bin/kube-apiserver bin/kube-controller-manager: $(call pins,kubernetes)
	@hack/build.sh $@ hack/kubernetes k8s.io/kubernetes/cmd/$(@F) '$(kubernetes_ldflags)' '1 to 6 minutes'

bin/kubectl: hack/kubectl/main.go $(call pins,kubectl)
	@hack/build.sh $@ hack/kubectl . '-s -w' '1 minute'

# Without service discovery in clouds, the build takes a third of the time.
bin/promtool: export GOFLAGS := $(GOFLAGS) -tags=remove_all_sd,enable_kubernetes_sd

bin/promtool: $(call pins,prometheus)
	@hack/build.sh $@ hack/prometheus github.com/prometheus/prometheus/cmd/$(@F) '-s -w' '3 minutes'

bin/staticcheck: $(call pins,lint)
	@hack/build.sh $@ hack/lint honnef.co/go/tools/cmd/staticcheck '-s -w' '1 minute'
