#!/bin/sh
# Runs one fuzzer on one processor, and prints how often it ran:
#
#	fuzz.sh TIME PACKAGE NAME
#
# At the end of the time, Go before 1.27 may report "context deadline exceeded" without a
# failing input (golang/go#75804). This script does not treat that as a failure.
# It limits the minimization of inputs, which could otherwise use up the time.
# go test passes when the fuzzer hangs until the end of the time. Here a fuzzer fails if it
# has not run in the second half of the time.
output=$(go test -run '^$' -fuzz "^$3\$" -fuzztime "$1" -parallel 1 -fuzzminimizetime 10x -timeout 0 "$2" </dev/null 2>&1)
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
if ! echo "$output" | awk '
	/^fuzz: elapsed/ { sub(/^[^,]*, /, ""); sub(/ \(.*/, ""); runs[n++] = $0 }
	END { exit n < 2 || runs[n-1] == runs[int((n-1)/2)] }'; then
	echo "$output"
	echo "$2 $3 hangs, or does not run"
	exit 255
fi
echo "$2 $3: $(echo "$output" | grep '^fuzz: elapsed' | tail -1 | sed 's/^fuzz: //')"
