#!/bin/sh
# Runs one fuzzer on one processor, and says how often it ran:
#
#	fuzz.sh TIME PACKAGE NAME
#
# When the time is over Go before 1.27 may call that a failure (golang/go#75804):
# "context deadline exceeded", and no input that has failed. It is none.
# To make an input shorter is bounded, or it would take all the time there is.
said=$(go test -run '^$' -fuzz "^$3\$" -fuzztime "$1" -parallel 1 -fuzzminimizetime 100x -timeout 0 "$2" </dev/null 2>&1)
if [ $? -ne 0 ]; then
	case $said in
	*'Failing input'* | *panic:*) over= ;;
	*"
    context deadline exceeded
FAIL"*) over=1 ;;
	*) over= ;;
	esac
	if [ -z "$over" ]; then
		echo "$said"
		exit 255 # xargs ends
	fi
fi
echo "$2 $3: $(echo "$said" | grep '^fuzz: elapsed' | tail -1 | sed 's/^fuzz: //')"
