// A module of its own that needs nothing, so that tests with any version of Kubernetes can have it.
module minikcm/kcmtest/process

go 1.23
