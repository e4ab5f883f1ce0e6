// A module of its own, so that what the command needs does not become needed by the program.
module minikcm/hack/renamemodule

go 1.26.0

require golang.org/x/mod v0.41.0
