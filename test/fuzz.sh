#!/bin/sh
# Runs one fuzzer on one processor, and prints how often it ran:
#
#	fuzz.sh TIME PACKAGE NAME
#
# At the end of the time, Go before 1.27 may report "context deadline exceeded" without a
# failing input (golang/go#75804). This script does not treat that as a failure.
# It limits the minimization of inputs, which could otherwise use up the time.
output=$(go test -run '^$' -fuzz "^$3\$" -fuzztime "$1" -parallel 1 -fuzzminimizetime 100x -timeout 0 "$2" </dev/null 2>&1)
if [ $? -ne 0 ]; then
	case $output in
	*'Failing input'* | *panic:*) expired= ;;
	*"
    context deadline exceeded
FAIL"*) expired=1 ;;
	*) expired= ;;
	esac
	if [ -z "$expired" ]; then
		echo "$output"
		exit 255 # xargs ends
	fi
fi
echo "$2 $3: $(echo "$output" | grep '^fuzz: elapsed' | tail -1 | sed 's/^fuzz: //')"
