// Mutants checks that the tests notice faults. Each patch in this directory introduces a
// fault. Mutants builds the tests with the fault and requires that the tests which the patch
// names fail.
//
//	go run ./test/mutants [-run regexp] [-part 1/2] [-j 3]
//
// from the root of the module. A mutant is killed if every test that it names passes without
// the fault and fails with it, by a failure, a panic or a timeout. Each test is run alone.
// Mutants exits with status 1 and names the mutants if any of them survives, does not compile
// or no longer applies.
//
// Mutants does not change the tree. The go command's -overlay replaces files by patched
// copies, so that only packages that depend on them are compiled again.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
)

func main() {
	pattern := flag.String("run", "", "test only the patches whose name matches this `regexp`")
	share := flag.String("part", "1/1", "test only a `part` of them: 1/2 and 2/2 are all together")
	// One more than CI has processors, because many mutants hang until their timeout.
	jobs := flag.Int("j", 3, "number of mutants to test concurrently")
	dir := flag.String("patches", filepath.Join("test", "mutants"), "`directory` with the patches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *pattern, *share, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, pattern, share string, jobs int) error {
	chosen, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	mutants, err := load(dir, chosen)
	if err != nil {
		return err
	}
	if mutants, err = part(mutants, share); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	lab := newLab(".", temp, os.Stdout)
	return lab.try(ctx, mutants, jobs)
}

// part returns the share of the mutants: "2/3" is the second of three parts, which have none in common
// and are all together.
func part(mutants []*mutant, share string) (some []*mutant, err error) {
	var k, n int
	if _, err := fmt.Sscanf(share+"\n", "%d/%d\n", &k, &n); err != nil || k < 1 || k > n {
		return nil, fmt.Errorf("part %q: want one such as 1/2", share)
	}
	for i, m := range mutants {
		if i%n == k-1 {
			some = append(some, m)
		}
	}
	return some, nil
}
