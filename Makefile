# Everything that developers and CI run. `make help` lists it.

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
INTEGRATION := $(SLOW) ./test/controlplane/... ./test/integration/...
UNIT         = ./pkg/controllers/node $$($(GO) list ./cmd/... ./pkg/... ./internal/... ./kcmtest/... ./test/... | grep -vE '/test/(controlplane|integration|mutants|prose)(/|$$)|/pkg/controllers/node$$')

# Programs on our base, each a module of its own.
EXAMPLES := ./examples/own-controller/... ./examples/controller-runtime/... ./examples/envtest/...

# What `make deflake` runs, and how often.
PKG   ?= ./pkg/...
RUN   ?= .
COUNT ?= 20

##@ Everyday

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/controller-manager
	CGO_ENABLED=0 GOWORK=off $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/controller-manager ./cmd/controller-manager

# The manifests of deploy/ have this name. With localhost no runtime looks for it in a registry of somebody else's.
IMAGE ?= localhost/controller-manager:v0.0.0-dev

.PHONY: image
image: build ## Build a container image of it, with buildah (Debian: apt-get install buildah)
	buildah build -f deploy/Containerfile -t $(IMAGE) bin

.PHONY: run
run: demo-controlplane build ## Watch it work: a control plane, two simulated nodes, our controllers; Ctrl-C ends all
	$(GO) build -o bin/test/demo ./test/demo
	bin/test/demo

.PHONY: bench
bench: bench-controlplane build ## Compare with kube-controller-manager on this machine
	$(GO) run ./test/bench

# A seed repeats a run as far as real time permits.
SEED ?= 1
FOR  ?= 2m

.PHONY: chaos
chaos: need-cc controlplane ## Random work and random faults for three managers, then judge them: make chaos SEED=7 FOR=2m
	@mkdir -p bin/test
	CGO_ENABLED=1 $(GO) build -race -o bin/test/controller-manager-chaos ./cmd/controller-manager
	$(GO) run ./test/chaos -manager bin/test/controller-manager-chaos -seed $(SEED) -for $(FOR) $(CHAOSFLAGS)

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf bin

##@ Checks, as CI runs them

.PHONY: test
test: test-unit test-integration ## Run the tests for every change (10 minutes)

# Go keeps the results of packages that have not changed.
.PHONY: test-unit
test-unit: need-cc ## Run unit tests, with the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 8m $(GOTESTFLAGS) $(UNIT)
	cd kcmtest/process && CGO_ENABLED=1 GOWORK=off $(GO) test -race $(GOTESTFLAGS) .

# Three packages at a time: each has a control plane, and most of them wait most of the time.
.PHONY: test-integration
test-integration: controlplane deploy-tools upstream-manager ## Run tests on a real etcd and kube-apiserver
	$(GO) test -count=1 -p 3 -timeout 8m $(GOTESTFLAGS) $(INTEGRATION)

.PHONY: test-examples
test-examples: controlplane ## Run the tests of examples/
	$(GO) test -count=1 -timeout 8m $(GOTESTFLAGS) $(EXAMPLES)

.PHONY: test-long
test-long: need-cc controlplane deploy-tools upstream-manager ## Run all tests with the race detector, long ones too, examples and chaos (30 minutes)
	CGO_ENABLED=1 LONG=1 $(GO) test -race -shuffle=on -timeout 20m $(GOTESTFLAGS) $(UNIT)
	CGO_ENABLED=1 LONG=1 $(GO) test -race -shuffle=on -count=1 -p 3 -timeout 25m $(GOTESTFLAGS) $(INTEGRATION) $(EXAMPLES)
	$(foreach seed,1 2 3,$(MAKE) chaos SEED=$(seed) FOR=2m &&) true

.PHONY: test-soak
test-soak: need-cc controlplane ## Run tests that take many minutes: PKG and RUN choose (an hour and more for all of them)
	CGO_ENABLED=1 LONG=1 SOAK=1 $(GO) test -race -count=1 -v -timeout 0 -run '$(RUN)' $(if $(filter file,$(origin PKG)),./test/integration/...,$(PKG))

.PHONY: test-large
test-large: controlplane ## Delete a namespace of 20,000 objects and watch the memory of the process that does it (2 minutes)
	$(GO) test -count=1 -v -timeout 20m -run TestMemoryOfALargeNamespace ./test/integration/namespace -args -objects=20000

.PHONY: deflake
deflake: need-cc ## Rerun tests until one fails: make deflake PKG=./test/integration/... RUN=TestName COUNT=20
	CGO_ENABLED=1 $(GO) test -race -shuffle=on -count=$(COUNT) -failfast -timeout 0 $(GOTESTFLAGS) -run '$(RUN)' $(PKG)

.PHONY: mutants
mutants: ## Break the code in the ways of test/mutants.txt and expect tests to fail: make mutants WORDS=lease (5 minutes)
	$(GO) run ./test/mutants $(WORDS)

# FROM is the output of an earlier `go test -json`.
FROM ?= bin/test.json

.PHONY: slowest
slowest: ## Print the slowest tests of make test, or of an earlier go test -json: make slowest FROM=file
ifeq ($(origin FROM),file)
	@mkdir -p bin
	$(MAKE) --keep-going test GOTESTFLAGS=-json >$(FROM); status=$$?; awk -f hack/slowest.awk $(FROM); exit $$status
else
	@awk -f hack/slowest.awk $(FROM)
endif

.PHONY: check-image
check-image: build ## Build the container image and run it, in a storage that is gone afterwards
	hack/check-image.sh $(IMAGE)

.PHONY: lint
lint: bin/staticcheck ## Check formatting and wording, go vet and staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) test -count=1 ./test/prose
	GOWORK=off $(GO) vet ./...
	$(GO) vet ./test/... $(EXAMPLES)
	cd kcmtest/process && GOWORK=off $(GO) vet . && GOOS=darwin GOWORK=off $(GO) vet . && GOOS=windows GOWORK=off $(GO) vet .
	bin/staticcheck ./... ./test/... $(EXAMPLES)

# The race detector is C code, so go test -race links with cgo.
.PHONY: need-cc
need-cc:
	@command -v "$$($(GO) env CC)" >/dev/null || { \
		echo "The race detector needs a C compiler and none was found."; \
		echo "Install gcc or clang (Debian: apt-get install gcc libc6-dev), or set CC."; exit 1; }

##@ Control plane for development

# Built once from pinned Go modules under hack/, into bin/. Each program is its own stamp. A folder in
# KUBEBUILDER_ASSETS takes the place of what it holds, and always of etcd and kube-apiserver.
given  = etcd kube-apiserver $(notdir $(wildcard $(KUBEBUILDER_ASSETS)/*))
assets = $(addprefix bin/,$(if $(KUBEBUILDER_ASSETS),$(filter-out $(given),$(1)),$(1)))

# Those have to be of our Kubernetes version.
fitting = $(if $(KUBEBUILDER_ASSETS),fitting-assets)

.PHONY: fitting-assets
fitting-assets:
	@hack/check-assets.sh '$(KUBEBUILDER_ASSETS)' $(KUBERNETES_VERSION)

.PHONY: controlplane
controlplane: $(fitting) $(call assets,etcd kube-apiserver kube-scheduler) ## Build etcd, kube-apiserver and kube-scheduler into bin/, if need be
	@echo "control plane: $(or $(KUBEBUILDER_ASSETS),bin)"

# What deploy/ is made for, to test it.
.PHONY: deploy-tools
deploy-tools: bin/kubectl bin/prometheus bin/promtool

# What the garbage collector is tested beside.
.PHONY: upstream-manager
upstream-manager: $(call assets,kube-controller-manager)

.PHONY: demo-controlplane
demo-controlplane: $(fitting) $(call assets,etcd kube-apiserver)

.PHONY: bench-controlplane
bench-controlplane: $(fitting) $(call assets,etcd kube-apiserver kube-controller-manager)

KUBERNETES_VERSION = $(shell awk '$$1 == "require" && $$2 == "k8s.io/kubernetes" {print $$3}' hack/kubernetes/go.mod)
kubernetes_ldflags = -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)
pins               = $(addprefix hack/$(1)/,go.mod go.sum tools.go)

bin/etcd: $(call pins,etcd)
	@hack/build.sh $@ hack/etcd go.etcd.io/etcd/server/v3 '-s -w' '1 minute'

bin/kube-apiserver: $(call pins,kubernetes)
	@hack/build.sh $@ hack/kubernetes k8s.io/kubernetes/cmd/kube-apiserver '$(kubernetes_ldflags)' '4 to 6 minutes'

bin/kube-controller-manager: $(call pins,kubernetes)
	@hack/build.sh $@ hack/kubernetes k8s.io/kubernetes/cmd/kube-controller-manager '$(kubernetes_ldflags)' '2 minutes'

bin/kube-scheduler: $(call pins,kubernetes)
	@hack/build.sh $@ hack/kubernetes k8s.io/kubernetes/cmd/kube-scheduler '$(kubernetes_ldflags)' '1 minute'

bin/kubectl: hack/kubectl/main.go $(filter-out %/tools.go,$(call pins,kubectl))
	@hack/build.sh $@ hack/kubectl . '-s -w' '1 minute'

# Without the clients of all clouds, of whose machines it could know, this takes a third of the time.
bin/prometheus bin/promtool: export GOFLAGS := $(GOFLAGS) -tags=remove_all_sd,enable_kubernetes_sd

bin/prometheus: $(call pins,prometheus)
	@hack/build.sh $@ hack/prometheus github.com/prometheus/prometheus/cmd/prometheus '-s -w' '3 minutes'

bin/promtool: bin/prometheus $(call pins,prometheus)
	@hack/build.sh $@ hack/prometheus github.com/prometheus/prometheus/cmd/promtool '-s -w' '10 seconds, after prometheus,'

bin/staticcheck: $(call pins,lint)
	@hack/build.sh $@ hack/lint honnef.co/go/tools/cmd/staticcheck '-s -w' '1 minute'
