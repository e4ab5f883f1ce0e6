# Prints the 40 slowest top-level tests and the time of each package, from the output of `go test -json`.
# Lines of other programs are skipped. The wall time of a cached package is 0.

function value(key,    s) {
	s = $0
	if (!sub(".*\"" key "\":\"?", "", s)) return ""
	sub(/[",}].*/, "", s)
	return s
}

/^\{"Time":"[^"]*","Action":"(pass|fail|skip)"/ {
	package = value("Package"); test = value("Test"); seconds = value("Elapsed")
	if (test == "") {
		wall[package] += seconds
	} else if (test !~ /\//) {
		sum[package] += seconds
		printf "%8.2f  %s %s\n", seconds, package, test | slowest
	}
}

BEGIN { slowest = "sort -rn | head -n 40"; print "slowest tests, in seconds:" }

END {
	close(slowest)
	print "\nseconds of all tests, wall time in seconds, package:"
	for (package in wall) printf "%8.2f %8.2f  %s\n", sum[package], wall[package], package | "sort -rn -k 2"
}
